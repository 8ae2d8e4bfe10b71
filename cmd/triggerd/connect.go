package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/triggerd/triggerd/configs"
	"github.com/triggerd/triggerd/console"
)

// defaultConfig is read when --config is not given and it exists.
const defaultConfig = "triggerd.yaml"

// configFiles is what --config names, or its default; empty when there is none.
func (c *cli) configFiles() []string {
	if len(c.configs) > 0 {
		return c.configs
	}
	if _, err := os.Stat(defaultConfig); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// Any other error is for the loader to report: a file that is there and cannot be read must not count as absent.
	return []string{defaultConfig}
}

// needConfig is for the commands that make no sense without a configuration.
func (c *cli) needConfig() (configs.Options, error) {
	files := c.configFiles()
	if len(files) == 0 {
		return configs.Options{}, usagef("no configuration: give --config FILE, or put %s into the working directory", defaultConfig)
	}
	return configs.Options{Files: files, Overlays: c.overlays}, nil
}

// dial makes the client for the daemon that the flags and the configuration name.
func (c *cli) dial() (console.Backend, error) {
	path, err := c.socketPath()
	if err != nil {
		return nil, err
	}
	return console.Dial(path)
}

func (c *cli) socketPath() (string, error) {
	if c.socket != "" {
		return c.socket, nil
	}
	cfg, err := c.loadForSocket()
	if err != nil {
		return "", fmt.Errorf("find the admin socket: %w", err)
	}
	return console.SocketPath(cfg.Server.Admin.Listen, cfg.NATS.Embedded.Store)
}

// loadForSocket reads the configuration as far as the socket needs it: variables and secrets of the daemon may be absent here.
func (c *cli) loadForSocket() (*configs.Config, error) {
	files := c.configFiles()
	o := configs.Options{Files: files, Overlays: c.overlays, AllowUnset: true}
	load := func() (*configs.Config, error) { return configs.Load(o) }
	if len(files) == 0 {
		load = func() (*configs.Config, error) { return configs.Parse("", nil, o) } // the defaults
	}
	cfg, err := load()
	var problems *configs.Errors
	if errors.As(err, &problems) && len(problems.Problems) > 0 {
		return nil, fmt.Errorf("the configuration has problems, first %s (see all with `triggerd validate`, or give --socket PATH)", problems.Problems[0])
	}
	return cfg, err
}

// plural is "1 trigger", "2 triggers".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, strings.TrimSuffix(noun, "s"))
}
