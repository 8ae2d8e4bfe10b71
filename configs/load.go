package configs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Options say what to load.
type Options struct {
	Files      []string                    // files, or folders whose *.yaml and *.yml files are read; they are joined as equals
	Overlays   []string                    // files laid over the result in this order
	Env        func(string) (string, bool) // looks variables up; default os.LookupEnv
	AllowUnset bool                        // unset variables are no problem: for checking a file where its environment is not
}

// Load reads, joins and checks a configuration. It blocks on reading the files and is safe to repeat.
// The error is an [*Errors] with every problem that was found; a configuration that comes back is valid, with its defaults filled in.
func Load(o Options) (*Config, error) {
	l := newLoader(o)
	for _, f := range l.list(o.Files) {
		l.add(f, l.read(f))
	}
	if len(o.Files) == 0 {
		l.problems.add(Problem{Msg: "no configuration file is named"})
	}
	return l.finish()
}

// Parse is [Load] for one document in memory, which counts as the contents of file; Options.Files is not used.
func Parse(file string, data []byte, o Options) (*Config, error) {
	l := newLoader(o)
	l.add(file, data)
	return l.finish()
}

// Sources lists what the configuration was read from: files, folders, overlays and the files of secrets. They are absolute, and
// a reload is due when one of them changes.
func (c *Config) Sources() []string { return slices.Clone(c.sources) }

// loader joins files into one tree.
type loader struct {
	o        Options
	problems problems
	root     *node
	sources  []string
	broken   bool // a file could not be read, so what it would have defined is not known
}

func newLoader(o Options) *loader {
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	return &loader{o: o, root: &node{kind: mappingNode, doc: &document{}}}
}

// list expands folders and drops repeats.
func (l *loader) list(names []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, name := range names {
		files := []string{name}
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			l.sources = append(l.sources, absolute(name))
			files = l.folder(name)
		}
		for _, f := range files {
			if abs := absolute(f); !seen[abs] {
				seen[abs] = true
				out = append(out, f)
			}
		}
	}
	return out
}

func (l *loader) folder(name string) []string {
	entries, err := os.ReadDir(name)
	if err != nil {
		l.fail(name, readError(err), "")
		return nil
	}
	var files []string
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(e.Name(), ".") {
			files = append(files, filepath.Join(name, e.Name()))
		}
	}
	if len(files) == 0 {
		l.fail(name, "folder holds no *.yaml or *.yml file", "")
	}
	return files
}

func (l *loader) fail(file, msg, hint string) {
	l.broken = true
	l.problems.add(Problem{File: file, Msg: msg, Hint: hint})
}

// read returns nil after reporting a problem.
func (l *loader) read(name string) []byte {
	l.sources = append(l.sources, absolute(name))
	f, err := os.Open(name)
	if err != nil {
		l.fail(name, readError(err), "")
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		l.fail(name, readError(err), "")
		return nil
	}
	return data
}

// readError drops the path from an error of the file system; the problem names it already.
func readError(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Sprintf("cannot be read: %v", err)
}

func (l *loader) parse(file string, data []byte) *node {
	p := &parser{
		doc: &document{file: file, dir: filepath.Dir(absolute(file))},
		env: l.o.Env, unset: l.o.AllowUnset, problems: &l.problems, open: map[*yaml.Node]bool{},
	}
	n, ok := p.parse(data)
	if !ok {
		l.broken = true
	}
	return n
}

func (l *loader) add(file string, data []byte) {
	n := l.parse(file, data)
	if n == nil {
		return
	}
	if l.root.doc.file == "" {
		l.root.doc, l.root.line, l.root.column = n.doc, n.line, n.column
	}
	union(l.root, n, nil, &l.problems)
}

// finish decodes and checks the tree.
func (l *loader) finish() (*Config, error) {
	for _, name := range l.o.Overlays {
		if n := l.parse(name, l.read(name)); n != nil {
			overlay(l.root, n)
		}
	}
	cfg := &Config{}
	d := &decoder{problems: &l.problems}
	d.structure(l.root, reflect.ValueOf(cfg).Elem(), nil)
	if !l.broken {
		c := &checker{cfg: cfg, root: l.root, o: l.o, problems: &l.problems}
		c.run()
	}
	if err := l.problems.err(); err != nil {
		return nil, err
	}
	for _, name := range sortedNames(cfg.Secrets) {
		if f := cfg.Secrets[name].File; f != "" {
			l.sources = append(l.sources, f)
		}
	}
	cfg.sources = l.sources
	return cfg, nil
}

// absolute is the path from the root; the path as it is where the working directory is gone.
func absolute(name string) string {
	if abs, err := filepath.Abs(name); err == nil {
		return abs
	}
	return name
}
