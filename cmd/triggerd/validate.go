package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/triggerd/triggerd/configs"
)

// problem is an element of `validate --json`.
type problem struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func (c *cli) validateCommand() *cobra.Command {
	var allowUnset bool
	var envFile string
	cmd := &cobra.Command{
		Use:     "validate",
		Short:   "Check the configuration and name every problem in it",
		Long:    "Check the configuration and name every problem in it, with its place. Nothing is started and no daemon is needed.",
		Example: "  triggerd validate --config triggerd.yaml\n  triggerd validate --config conf.d --env-file ci.env",
		Args:    want(),
	}
	cmd.Flags().BoolVar(&allowUnset, "allow-unset", false, "unset variables are no problem")
	cmd.Flags().StringVar(&envFile, "env-file", "", "file of NAME=value lines, which count before the environment")
	cmd.RunE = c.run(func(*cobra.Command, []string) error {
		o, err := c.needConfig()
		if err != nil {
			return err
		}
		o.AllowUnset = allowUnset
		if envFile != "" {
			if o.Env, err = envFrom(envFile); err != nil {
				return err
			}
		}
		cfg, err := configs.Load(o)
		return c.printProblems(cfg, err)
	})
	return cmd
}

// printProblems prints problems as the result they are, on standard output.
func (c *cli) printProblems(cfg *configs.Config, loadErr error) error {
	var found *configs.Errors
	if loadErr != nil && !errors.As(loadErr, &found) {
		return loadErr
	}
	list := []problem{}
	if found != nil {
		for _, p := range found.Problems {
			list = append(list, problem{File: p.File, Line: p.Line, Column: p.Column, Path: p.Path, Message: p.Msg, Hint: p.Hint})
		}
	}
	if err := printOne(c, list, func(w io.Writer) error {
		if found == nil {
			_, err := fmt.Fprintf(w, "ok: %s, %s\n", plural(len(cfg.Connections), "connection"), plural(len(cfg.Triggers), "trigger"))
			return err
		}
		for _, p := range found.Problems {
			if _, err := fmt.Fprintln(w, cleanLines(p.String())); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if found == nil {
		return nil
	}
	if !c.json {
		_, _ = fmt.Fprintf(c.Err, "triggerd: %s\n", plural(len(list), "problem"))
	}
	return errReported
}

// envFrom looks names up in a file first, then in the environment.
func envFrom(file string) (func(string) (string, bool), error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read --env-file: %w", err)
	}
	vars, err := parseEnv(string(data))
	if err != nil {
		return nil, fmt.Errorf("read --env-file %s: %w", file, err)
	}
	return func(name string) (string, bool) {
		if v, ok := vars[name]; ok {
			return v, true
		}
		return os.LookupEnv(name)
	}, nil
}
