package expr

import (
	"fmt"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
)

// setup is what the expressions of a scope are compiled with.
type setup struct {
	env     *cel.Env
	guarded map[string][]*functions.Overload
}

// They are built once, when first asked for, and never change.
var setups = [...]func() (*setup, error){
	Decision: sync.OnceValues(func() (*setup, error) { return newSetup(Decision) }),
	Request:  sync.OnceValues(func() (*setup, error) { return newSetup(Request) }),
	Action:   sync.OnceValues(func() (*setup, error) { return newSetup(Action) }),
}

func setupOf(s Scope) (*setup, error) {
	if int(s) >= len(setups) {
		return nil, fmt.Errorf("no scope %d", s)
	}
	return setups[s]()
}

func newSetup(s Scope) (*setup, error) {
	env, err := newEnv(s)
	if err != nil {
		return nil, err
	}
	g, err := guarded(env)
	if err != nil {
		return nil, err
	}
	return &setup{env: env, guarded: g}, nil
}

// variables are the names of a scope, without `secrets`, which is declared in all so that its errors can be ours.
func variables(s Scope) map[string]*cel.Type {
	switch s {
	case Request:
		return map[string]*cel.Type{"request": requestObject.typ, "now": cel.TimestampType}
	case Action:
		return map[string]*cel.Type{
			"event": eventObject.typ, "now": cel.TimestampType,
			"input": cel.DynType, "turn": turnObject.typ,
		}
	}
	return map[string]*cel.Type{"event": eventObject.typ, "now": cel.TimestampType}
}

func newEnv(s Scope) (*cel.Env, error) {
	// CEL keeps one shared "no such overload" error and labels it with the place of its first use, unlocked. Labelled here,
	// it is never written again.
	types.LabelErrNode(-1, types.NoSuchOverloadErr())

	opts := []cel.EnvOption{
		cel.OptionalTypes(),
		ext.Strings(),
		ext.Math(),
		ext.Lists(),
		ext.Sets(),
		ext.Encoders(ext.EncodersVersion(0)), // its JSON functions of later versions go through doubles; ours are exact
		cel.Lib(jsonLib{}),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.Variable("secrets", stringMap),
	}
	for name, typ := range variables(s) {
		opts = append(opts, cel.Variable(name, typ))
	}
	opts = append(opts, cel.CustomTypeAdapter(valueAdapter{}), func(e *cel.Env) (*cel.Env, error) {
		return cel.CustomTypeProvider(provider{e.CELTypeProvider()})(e) // last: options before it add types to CEL's own
	})
	return cel.NewEnv(opts...)
}

// compiled is an expression that is ready to run; safe for concurrent use.
type compiled struct {
	src     string
	scope   Scope
	ast     *ast.AST
	out     *cel.Type
	prog    cel.Program
	secrets []string // names it uses
}

// compile parses, checks and plans src. secrets says whether it may use them.
func compile(src string, s Scope, secrets bool) (c *compiled, err error) {
	defer func() {
		if r := recover(); r != nil { // a bug in the CEL library must not take the daemon down with it
			c, err = nil, errorAt(src, 0, fmt.Sprintf("compile: %v", r))
		}
	}()
	if strings.TrimSpace(src) == "" {
		return nil, errorAt(src, 0, "the expression is empty")
	}
	set, err := setupOf(s)
	if err != nil {
		return nil, errorAt(src, 0, fmt.Sprintf("set up CEL: %v", err))
	}
	parsed, issues := set.env.Parse(src)
	if issues.Err() != nil {
		return nil, fromIssues(src, issues, func(*cel.Error) string { return "" })
	}
	tree := parsed.NativeRep()
	names, problem := secretNames(src, tree, secrets && s == Action)
	if problem == nil {
		problem = refuseLiterals(src, tree)
	}
	if problem != nil {
		return nil, problem
	}
	checked, issues := set.env.Check(parsed)
	if issues.Err() != nil {
		return nil, fromIssues(src, issues, func(e *cel.Error) string { return suggest(tree, s, e) })
	}
	opts := append(costs(), cel.EvalOptions(cel.OptOptimize), cel.CustomDecoratorV2(orderMapLiterals))
	prog, err := set.env.Program(checked, append(opts, set.guards(checked.NativeRep().Expr())...)...)
	if err != nil {
		return nil, errorAt(src, 0, fmt.Sprintf("plan: %v", err))
	}
	return &compiled{src: src, scope: s, ast: checked.NativeRep(), out: checked.OutputType(), prog: prog, secrets: names}, nil
}

// refuseLiterals refuses objects that are made in an expression, such as triggerd.Event{...}.
func refuseLiterals(src string, a *ast.AST) *Error {
	var problem *Error
	var visit func(ast.Expr)
	visit = func(e ast.Expr) {
		if e.Kind() == ast.StructKind && problem == nil {
			problem = errorAt(src, offsetOf(src, a, e.ID()), fmt.Sprintf("%s{...}: objects cannot be made here, write a map: {'name': value}", e.AsStruct().TypeName()))
		}
		for _, c := range children(e) {
			visit(c)
		}
	}
	visit(a.Expr())
	return problem
}

// suggest finds what a misspelt name may have meant.
func suggest(a *ast.AST, s Scope, e *cel.Error) string {
	name, undefined := quoted(e.Message, "undefined field '")
	if undefined {
		return suggestField(a, s, e.ExprID, name)
	}
	name, undeclared := quoted(e.Message, "undeclared reference to '")
	if !undeclared || strings.Contains(e.Message, "did you mean") {
		return ""
	}
	first, _, _ := strings.Cut(name, ".")
	var roots []string
	for v, typ := range variables(s) {
		roots = append(roots, v)
		if o, ok := objectNamed(typ.TypeName()); ok && v != "turn" {
			if _, ok := o.field(first); ok {
				return fmt.Sprintf("did you mean '%s.%s'?", v, first)
			}
		}
	}
	if near := nearest(first, roots); near != "" {
		return fmt.Sprintf("did you mean '%s'?", near)
	}
	return ""
}

func suggestField(a *ast.AST, s Scope, id int64, name string) string {
	operand := ""
	if e := find(a.Expr(), id); e != nil {
		for _, c := range children(e) {
			if c.Kind() == ast.IdentKind {
				operand = c.AsIdent()
				break
			}
		}
	}
	typ, ok := variables(s)[operand]
	if !ok {
		return ""
	}
	o, ok := objectNamed(typ.TypeName())
	if !ok {
		return ""
	}
	if near := nearest(name, o.names()); near != "" {
		return fmt.Sprintf("did you mean '%s.%s'?", operand, near)
	}
	return fmt.Sprintf("%s has %s", operand, strings.Join(o.names(), ", "))
}

func quoted(msg, before string) (string, bool) {
	_, rest, ok := strings.Cut(msg, before)
	name, _, closed := strings.Cut(rest, "'")
	return name, ok && closed
}

const (
	jsonEncodeID = "triggerd_json_encode"
	jsonParseID  = "triggerd_json_parse"
)

// jsonLib is json.encode(value) and json.parse(text), which gives an optional: none where the text is not JSON.
type jsonLib struct{}

// CompileOptions implements cel.Library.
func (jsonLib) CompileOptions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function("json.encode", cel.Overload(jsonEncodeID, []*cel.Type{cel.DynType}, cel.StringType, cel.UnaryBinding(jsonEncode))),
		cel.Function("json.parse", cel.Overload(jsonParseID, []*cel.Type{cel.StringType}, cel.OptionalType(cel.DynType), cel.UnaryBinding(jsonParse))),
	}
}

// ProgramOptions implements cel.Library.
func (jsonLib) ProgramOptions() []cel.ProgramOption { return nil }

func jsonEncode(v ref.Val) ref.Val {
	plain, err := toPlain(v)
	if err != nil {
		return types.WrapErr(err)
	}
	b, err := JSON(plain)
	if err != nil {
		return types.WrapErr(err)
	}
	return types.String(b)
}

func jsonParse(v ref.Val) ref.Val {
	s, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	plain, err := decodeJSON([]byte(s))
	if err != nil {
		return types.OptionalNone
	}
	return types.OptionalOf(valueAdapter{}.NativeToValue(plain))
}
