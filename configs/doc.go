// Package configs turns configuration files into checked, plain values. It knows the shape of the files and nothing of what runs.
//
// [Load] goes through these steps and collects every problem on the way: read the files, join them (a clash is a problem), lay the
// overlays over them, decode by the types of this package, fill in defaults, check. A problem carries file, line, column and path.
package configs
