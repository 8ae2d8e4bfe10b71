package main

import (
	"cmp"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is what a build without a version in its module says it is: `go build -ldflags "-X main.version=..."`, as the Dockerfile does.
var version string

// versions is `version --json`.
type versions struct {
	Version    string `json:"version"`
	Revision   string `json:"revision,omitempty"` // of the source, with "-dirty" when it had changes
	Go         string `json:"go"`
	NATSServer string `json:"nats_server"`
	Platform   string `json:"platform"`
}

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of triggerd, Go and the NATS server inside",
		Example: "  triggerd version --json",
		Args:    want(),
		RunE: c.run(func(*cobra.Command, []string) error {
			info, _ := debug.ReadBuildInfo()
			v := readVersions(info)
			return printOne(c, v, func(w io.Writer) error {
				return fields(w, "triggerd", v.Version, "revision", v.Revision, "go", v.Go, "nats-server", v.NATSServer, "platform", v.Platform)
			})
		}),
	}
}

// readVersions takes what the Go linker left in the binary; info may be nil.
func readVersions(info *debug.BuildInfo) versions {
	v := versions{Version: cmp.Or(version, "devel"), Go: runtime.Version(), NATSServer: "unknown", Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info == nil {
		return v
	}
	if version == "" && info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, d := range info.Deps {
		if d.Path != "github.com/nats-io/nats-server/v2" {
			continue
		}
		v.NATSServer = d.Version
		if d.Replace != nil {
			v.NATSServer = d.Replace.Version
		}
	}
	dirty := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if dirty && v.Revision != "" {
		v.Revision += "-dirty"
	}
	return v
}
