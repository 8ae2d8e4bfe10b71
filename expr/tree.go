package expr

import (
	"cel.dev/cel-go/common/ast"
)

// children are the parts of an expression, in the order of the source as far as the tree keeps it.
func children(e ast.Expr) []ast.Expr {
	switch e.Kind() {
	case ast.CallKind:
		c := e.AsCall()
		if c.IsMemberFunction() {
			return append([]ast.Expr{c.Target()}, c.Args()...)
		}
		return c.Args()
	case ast.SelectKind:
		return []ast.Expr{e.AsSelect().Operand()}
	case ast.ListKind:
		return e.AsList().Elements()
	case ast.MapKind:
		var out []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			out = append(out, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return out
	case ast.StructKind:
		var out []ast.Expr
		for _, f := range e.AsStruct().Fields() {
			out = append(out, f.AsStructField().Value())
		}
		return out
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		return []ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()}
	}
	return nil
}

// find is the part with this id, nil when there is none.
func find(e ast.Expr, id int64) ast.Expr {
	if e.ID() == id {
		return e
	}
	for _, c := range children(e) {
		if f := find(c, id); f != nil {
			return f
		}
	}
	return nil
}

// offsetOf is where a part starts in the source, in bytes.
func offsetOf(src string, a *ast.AST, id int64) int {
	loc := a.SourceInfo().GetStartLocation(id)
	if loc.Line() < 1 {
		return 0
	}
	return byteOffset(src, loc.Line(), loc.Column())
}
