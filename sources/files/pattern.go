package files

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// pattern is one glob of `paths`.
type pattern struct {
	glob  string         // with captures turned into wildcards: what doublestar decides by
	root  string         // the folder above the first wildcard
	depth int            // how many folders below root can hold a match; -1 = any number
	names *regexp.Regexp // reads the captures; nil when there are none
}

// capture is `{name}`: braces around a name without a comma. Alternatives have a comma.
var capture = regexp.MustCompile(`\{([A-Za-z_][A-Za-z0-9_]*)\}`)

func compile(glob string) (pattern, error) {
	if !filepath.IsAbs(glob) {
		return pattern{}, fmt.Errorf("path %q is not absolute", glob)
	}
	glob = path.Clean(filepath.ToSlash(glob))
	p := pattern{glob: capture.ReplaceAllString(glob, "?*")}
	if !doublestar.ValidatePattern(p.glob) {
		return pattern{}, fmt.Errorf("path %q is not a valid glob", glob)
	}
	if ignored(strings.NewReplacer("*", "x", "?", "x").Replace(path.Base(p.glob))) {
		return pattern{}, fmt.Errorf("path %q can only match names of temporary files, which are left out", glob)
	}
	var rest string
	p.root, rest = doublestar.SplitPattern(p.glob)
	p.depth = strings.Count(rest, "/")
	if strings.Contains(rest, "**") || strings.ContainsAny(rest, "{") && p.depth > 0 {
		p.depth = -1 // alternatives may hold slashes of their own
	}
	if capture.MatchString(glob) {
		var err error
		if p.names, err = captures(glob); err != nil {
			return pattern{}, err
		}
	}
	return p, nil
}

// captures translates a glob into a regular expression whose groups are its captures.
func captures(glob string) (*regexp.Regexp, error) {
	var b strings.Builder
	seen := make(map[string]bool)
	b.WriteString("^")
	for depth := 0; glob != ""; {
		n := 1
		switch m := capture.FindStringSubmatchIndex(glob); {
		case m != nil && m[0] == 0:
			name := glob[m[2]:m[3]]
			if seen[name] {
				return nil, fmt.Errorf("capture {%s} is used twice", name)
			}
			seen[name] = true
			b.WriteString("(?P<" + name + ">[^/]+)")
			n = m[1]
		case strings.HasPrefix(glob, "/**/"):
			b.WriteString("/(?:.*/)?")
			n = 4
		case strings.HasPrefix(glob, "/**") && len(glob) == 3:
			b.WriteString("(?:/.*)?")
			n = 3
		case glob[0] == '*':
			b.WriteString("[^/]*")
		case glob[0] == '?':
			b.WriteString("[^/]")
		case glob[0] == '{':
			depth++
			b.WriteString("(?:")
		case glob[0] == '}' && depth > 0:
			depth--
			b.WriteString(")")
		case glob[0] == ',' && depth > 0:
			b.WriteString("|")
		case glob[0] == '[':
			if n = strings.IndexByte(glob, ']') + 1; n <= 0 {
				return nil, errors.New("class without an end")
			}
			class := glob[1 : n-1]
			if class != "" && class[0] == '!' {
				class = "^" + class[1:]
			}
			b.WriteString("[" + class + "]")
		case glob[0] == '\\' && len(glob) > 1:
			b.WriteString(regexp.QuoteMeta(glob[1:2]))
			n = 2
		default:
			b.WriteString(regexp.QuoteMeta(glob[:1]))
		}
		glob = glob[n:]
	}
	re, err := regexp.Compile(b.String() + "$")
	if err != nil {
		return nil, fmt.Errorf("read captures: %w", err)
	}
	return re, nil
}

// patterns are all globs of a connection.
type patterns struct {
	paths   []pattern
	exclude []string
}

func compileAll(paths, exclude []string) (*patterns, error) {
	if len(paths) == 0 {
		return nil, errors.New("no paths")
	}
	all := new(patterns)
	for _, glob := range paths {
		p, err := compile(glob)
		if err != nil {
			return nil, err
		}
		all.paths = append(all.paths, p)
	}
	for _, glob := range exclude {
		if !doublestar.ValidatePattern(glob) {
			return nil, fmt.Errorf("exclude %q is not a valid glob", glob)
		}
		all.exclude = append(all.exclude, filepath.ToSlash(glob))
	}
	return all, nil
}

// match reports whether a file's path counts, and what its captures read; the first pattern that matches decides.
func (ps *patterns) match(name string) (captured map[string]string, ok bool) {
	slashed := filepath.ToSlash(name)
	if ignored(path.Base(slashed)) || ps.excluded(slashed) {
		return nil, false
	}
	for _, p := range ps.paths {
		if !doublestar.MatchUnvalidated(p.glob, slashed) {
			continue
		}
		captured = make(map[string]string)
		if p.names == nil {
			return captured, true
		}
		groups := p.names.FindStringSubmatch(slashed)
		for i, group := range p.names.SubexpNames() {
			if group != "" && i < len(groups) {
				captured[group] = groups[i]
			}
		}
		return captured, true
	}
	return nil, false
}

// wants reports whether files in the folder can match.
func (ps *patterns) wants(dir string) bool {
	slashed := filepath.ToSlash(dir)
	if strings.HasPrefix(path.Base(slashed), "..") || ps.excluded(slashed) {
		return false
	}
	for _, p := range ps.paths {
		if slashed == p.root {
			return true
		}
		below, ok := strings.CutPrefix(slashed, strings.TrimSuffix(p.root, "/")+"/")
		if ok && (p.depth < 0 || strings.Count(below, "/") < p.depth) {
			return true
		}
	}
	return false
}

func (ps *patterns) excluded(slashed string) bool {
	for _, glob := range ps.exclude {
		subject := slashed
		if !strings.Contains(glob, "/") {
			subject = path.Base(slashed)
		}
		if doublestar.MatchUnvalidated(glob, subject) {
			return true
		}
	}
	return false
}

// roots are the distinct folders above the wildcards.
func (ps *patterns) roots() []string {
	var out []string
	seen := make(map[string]bool)
	for _, p := range ps.paths {
		if root := filepath.FromSlash(p.root); !seen[root] {
			seen[root] = true
			out = append(out, root)
		}
	}
	return out
}

// String names the patterns for the cursor: two that print alike match alike.
func (ps *patterns) String() string {
	var b strings.Builder
	for _, p := range ps.paths {
		fmt.Fprintf(&b, "%q ", p.glob)
	}
	for _, glob := range ps.exclude {
		fmt.Fprintf(&b, "!%q ", glob)
	}
	return b.String()
}

// ignored reports whether a name belongs to a temporary file: of editors (vim tries out a folder with "4913"), of downloads, or of
// Kubernetes, which keeps a volume's versions in folders that begin with "..".
func ignored(name string) bool {
	switch {
	case name == "4913", strings.HasSuffix(name, "~"), strings.HasSuffix(name, ".tmp"),
		strings.HasPrefix(name, ".#"), strings.HasPrefix(name, ".."):
		return true
	case len(name) > 1 && name[0] == '#' && name[len(name)-1] == '#':
		return true
	}
	ext := path.Ext(name)
	return name[0] == '.' && len(ext) == 4 && strings.HasPrefix(ext, ".sw") && len(name) > 4
}
