package configs

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"reflect"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"
)

// The descriptions in the schema are the comments of the types.
//
//go:embed types.go
var typesSource string

// Schema returns the JSON Schema (draft 2020-12) of a configuration file, made from the Go types. It says what editors can know:
// keys, types, words, bounds and which keys exclude each other. Expressions, names across sections and the rest is what [Load] checks.
func Schema() ([]byte, error) {
	comments, err := typeComments()
	if err != nil {
		return nil, fmt.Errorf("read comments of the types: %w", err)
	}
	r := &jsonschema.Reflector{
		FieldNameTag: "yaml", RequiredFromJSONSchemaTags: true, Anonymous: true, ExpandedStruct: true,
		Mapper:        scalarSchema,
		LookupComment: func(t reflect.Type, field string) string { return comments[t.Name()+"."+field] },
	}
	root := r.Reflect(&Config{})
	s := &schemaBuilder{defs: root.Definitions}
	s.fields(reflect.TypeFor[Config](), root)
	for _, t := range structTypes(reflect.TypeFor[Config]()) {
		s.fields(t, s.defs[t.Name()])
	}
	s.sections(root)
	s.shortForms()
	s.defs["Variable"] = &jsonschema.Schema{Type: "string", Pattern: `\$\{`, Description: "A value that ${VAR} or ${VAR:-default} gives."}
	root.Title = "triggerd configuration"
	root.PatternProperties = map[string]*jsonschema.Schema{"^x-": {Description: "Ignored: a home for anchors."}}
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode schema: %w", err)
	}
	return []byte(unescapeHTML.Replace(string(out)) + "\n"), nil
}

// unescapeHTML undoes what encoding/json does for web pages; an escaped backslash in front is left alone.
var unescapeHTML = strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&")

// typeComments maps "Type." and "Type.Field" to their comments.
func typeComments() (map[string]string, error) {
	file, err := goparser.ParseFile(token.NewFileSet(), "types.go", typesSource, goparser.ParseComments)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		decl, ok := n.(*ast.GenDecl)
		if !ok {
			return true
		}
		for _, spec := range decl.Specs {
			ts, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			out[ts.Name.Name+"."] = oneLine(decl.Doc.Text())
			if st, ok := ts.Type.(*ast.StructType); ok {
				for _, f := range st.Fields.List {
					for _, name := range f.Names {
						out[ts.Name.Name+"."+name.Name] = oneLine(f.Doc.Text() + f.Comment.Text())
					}
				}
			}
		}
		return false
	})
	return out, nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// structTypes lists the struct types that t is made of, without t.
func structTypes(t reflect.Type) []reflect.Type {
	var out []reflect.Type
	seen := map[reflect.Type]bool{t: true}
	var visit func(reflect.Type)
	visit = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			visit(t.Elem())
		case reflect.Struct:
			if !seen[t] {
				seen[t] = true
				out = append(out, t)
			}
			for i := range t.NumField() {
				if yamlKey(t.Field(i)) != "" {
					visit(t.Field(i).Type)
				}
			}
		}
	}
	visit(t)
	return out
}

const (
	durationPattern = `^\s*([0-9]+(\.[0-9]+)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h|d|w)`
	sizeSchema      = `^\s*[0-9]+(\.[0-9]+)?\s*(B|KiB|MiB|GiB|TiB)?\s*$|\$\{`
)

// scalarSchema describes the types that files write in another form than Go holds them.
func scalarSchema(t reflect.Type) *jsonschema.Schema {
	text := &jsonschema.Schema{Type: "string"}
	switch t {
	case durationType:
		return anyOf(&jsonschema.Schema{Type: "string", Pattern: durationPattern + `|^0$|\$\{`}, &jsonschema.Schema{Const: 0})
	case sizeType:
		return anyOf(&jsonschema.Schema{Type: "string", Pattern: sizeSchema}, &jsonschema.Schema{Type: "integer", Minimum: "0"})
	case reflect.TypeFor[StringList]():
		return anyOf(text, &jsonschema.Schema{Type: "array", Items: text})
	}
	switch t.Kind() {
	case reflect.Int:
		return anyOf(&jsonschema.Schema{Type: "integer"}, variableRef())
	case reflect.Bool:
		return anyOf(&jsonschema.Schema{Type: "boolean"}, variableRef())
	}
	return nil
}

func anyOf(s ...*jsonschema.Schema) *jsonschema.Schema { return &jsonschema.Schema{AnyOf: s} }

func variableRef() *jsonschema.Schema { return &jsonschema.Schema{Ref: "#/$defs/Variable"} }

// schemaBuilder adds what struct tags say to the schema of the types.
type schemaBuilder struct{ defs jsonschema.Definitions }

func (s *schemaBuilder) fields(t reflect.Type, def *jsonschema.Schema) {
	for i := range t.NumField() {
		f := t.Field(i)
		key := yamlKey(f)
		if key == "" {
			continue
		}
		prop, ok := def.Properties.Get(key)
		if !ok {
			panic("configs: no schema for " + t.Name() + "." + key)
		}
		if f.Tag.Get("required") != "" {
			def.Required = append(def.Required, key)
		}
		decorate(f, prop)
	}
	if keys := kindsOf(t, "source"); len(keys) > 0 {
		if _, ok := def.Properties.Get("connection"); ok {
			keys = append([]string{"connection"}, keys...)
		}
		def.OneOf = oneRequired(keys)
	}
	for _, kind := range []string{"action", "times"} {
		if keys := kindsOf(t, kind); len(keys) > 0 {
			def.OneOf = oneRequired(keys)
		}
	}
	if t == reflect.TypeFor[Secret]() {
		def.OneOf = oneRequired(keysOf(t))
	}
}

func oneRequired(keys []string) []*jsonschema.Schema {
	var out []*jsonschema.Schema
	for _, k := range keys {
		out = append(out, &jsonschema.Schema{Required: []string{k}})
	}
	return out
}

func decorate(f reflect.StructField, prop *jsonschema.Schema) {
	if d := f.Tag.Get("default"); d != "" {
		prop.Default = d
		if n, err := strconv.Atoi(d); err == nil {
			prop.Default = n
		} else if d == "true" {
			prop.Default = true
		}
	}
	if words := f.Tag.Get("enum"); words != "" {
		enum := &jsonschema.Schema{}
		for w := range strings.SplitSeq(words, "|") {
			enum.Enum = append(enum.Enum, w)
		}
		prop.Type, prop.AnyOf = "", []*jsonschema.Schema{enum, variableRef()}
	}
	if f.Tag.Get("format") == "name" {
		prop.Pattern = `^[A-Za-z][A-Za-z0-9_-]{0,63}$|\$\{`
	}
	if f.Tag.Get("format") == "labels" {
		most := uint64(maxLabels)
		prop.MaxProperties, prop.PropertyNames = &most, &jsonschema.Schema{Pattern: labelPattern}
		prop.AdditionalProperties.Pattern = labelPattern + `|\$\{`
	}
	if f.Tag.Get("expr") != "" && prop.Type == "string" {
		prop.Pattern = `\S`
	}
	if f.Tag.Get("size") != "" {
		atLeastOne(prop)
	}
	elem := prop
	if prop.Items != nil {
		elem = prop.Items
	}
	if t := f.Type; t.Kind() == reflect.Int || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Int {
		elem.AnyOf[0].Minimum, elem.AnyOf[0].Maximum = json.Number(f.Tag.Get("min")), json.Number(f.Tag.Get("max"))
	}
}

func atLeastOne(prop *jsonschema.Schema) {
	one := uint64(1)
	if prop.Type == "array" {
		prop.MinItems = &one
	}
	for _, alt := range prop.AnyOf {
		if alt.Type == "array" {
			alt.MinItems = &one
		}
	}
}

// sections lets each top-level section be empty, and those with names be a list as well.
func (s *schemaBuilder) sections(root *jsonschema.Schema) {
	t := reflect.TypeFor[Config]()
	for i := range t.NumField() {
		f := t.Field(i)
		key := yamlKey(f)
		if key == "" {
			continue
		}
		prop, _ := root.Properties.Get(key)
		whole := *prop
		whole.Description = ""
		forms := []*jsonschema.Schema{&whole, {Type: "null"}}
		if f.Type.Kind() == reflect.Map {
			whole.PropertyNames = &jsonschema.Schema{Pattern: "^[A-Za-z][A-Za-z0-9_-]{0,63}$"}
			forms = append(forms, &jsonschema.Schema{Type: "array", Items: s.entry(f.Type.Elem().Name())})
		}
		root.Properties.Set(key, &jsonschema.Schema{Description: prop.Description, AnyOf: forms})
	}
}

// entry describes a definition that carries its name itself.
func (s *schemaBuilder) entry(def string) *jsonschema.Schema {
	entry := *s.defs[def]
	entry.Properties = jsonschema.NewProperties()
	for _, k := range []string{"name", "id"} {
		entry.Properties.Set(k, &jsonschema.Schema{Type: "string", Description: "The name; give one of name and id."})
	}
	for p := s.defs[def].Properties.Oldest(); p != nil; p = p.Next() {
		entry.Properties.Set(p.Key, p.Value)
	}
	entry.AllOf = []*jsonschema.Schema{{OneOf: oneRequired([]string{"name", "id"})}}
	s.defs[def+"Entry"] = &entry
	return &jsonschema.Schema{Ref: "#/$defs/" + def + "Entry"}
}

// shortForms lets a plain string stand for the types that have a short form.
func (s *schemaBuilder) shortForms() {
	for _, t := range structTypes(reflect.TypeFor[Config]()) {
		if shortKey(t) == "" {
			continue
		}
		long := *s.defs[t.Name()]
		long.Description = ""
		s.defs[t.Name()] = &jsonschema.Schema{
			Description: s.defs[t.Name()].Description,
			AnyOf:       []*jsonschema.Schema{{Type: "string", Pattern: `\S`, Description: "Short for " + shortKey(t) + "."}, &long},
		}
	}
}
