package bus

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/triggerd/triggerd"
)

// App is a push connection's user on the embedded server. The file holds its password and is a context that the nats command can load.
type App struct {
	Connection string
	User       string
	File       string
	URL        string
	Subjects   string
	Enabled    bool
}

// appFile is the format of a nats CLI context, so that `nats --context FILE pub ...` works as it is.
type appFile struct {
	Description string `json:"description"`
	URL         string `json:"url"`
	User        string `json:"user"`
	Password    string `json:"password"`
	InboxPrefix string `json:"inbox_prefix"`
}

// apps are the stored credentials, one file per connection. A revoked one keeps a marker, so that a restart does not bring it back.
type apps struct {
	dir string
	mu  sync.Mutex
	all map[string]appFile
	off map[string]bool
}

const revokedSuffix = ".revoked"

func loadApps(store string) (*apps, error) {
	a := &apps{dir: filepath.Join(store, "apps"), all: map[string]appFile{}, off: map[string]bool{}}
	entries, err := os.ReadDir(a.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read app credentials: %w", err)
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), revokedSuffix); ok {
			a.off[name] = true
		}
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || triggerd.ValidName(name) != nil || a.off[name] {
			continue // with both, a crash has cut short a revocation, or a renewal whose password nobody was told
		}
		b, err := os.ReadFile(filepath.Join(a.dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read app credentials: %w", err)
		}
		var f appFile
		if err := json.Unmarshal(b, &f); err != nil || f.Password == "" {
			return nil, fmt.Errorf("app credentials %s are damaged: remove the file, a new one is made", filepath.Join(a.dir, e.Name()))
		}
		a.all[name] = f
	}
	return a, nil
}

// daemonUser cannot be an app's name, because no connection's name starts with '_'.
const (
	daemonUser    = "_triggerd"
	daemonAccount = "TRIGGERD"
)

// accounts is the server's configuration of who may do what (design §3, "push"): the daemon's own account, which has JetStream, and an account
// with one confined user for each push connection.
//
// Permissions alone would not confine an app: the server and the daemon answer to whatever reply subject a publish names, so an app could
// have an acknowledgement stored as another connection's event or fence. Between accounts, answers only come back to where the question was asked.
//
// The user of the connection that waits is left out.
func (e *embedded) accounts(waits string) string {
	e.apps.mu.Lock()
	defer e.apps.mu.Unlock()
	var exports, others strings.Builder
	for _, c := range slices.Sorted(maps.Keys(e.apps.all)) {
		f, account := e.apps.all[c], "APP_"+c
		var imports []string
		for _, subject := range []string{e.names.PushSubjects(c), e.names.SubmitSubjects(c)} {
			fmt.Fprintf(&exports, "{service: %q, accounts: [%q]}\n", subject, account)
			imports = append(imports, fmt.Sprintf("{service: {account: %q, subject: %q}}", daemonAccount, subject))
		}
		user := ""
		if c != waits {
			user = fmt.Sprintf("{user: %q, password: %q, permissions: {publish: [%q, %q], subscribe: [%q]}}",
				f.User, f.Password, e.names.PushSubjects(c), e.names.SubmitSubjects(c), f.InboxPrefix+".>")
		}
		fmt.Fprintf(&others, "%q: {users: [%s], imports: [%s]}\n", account, user, strings.Join(imports, ", "))
	}
	return fmt.Sprintf("accounts: {\n%q: {jetstream: enabled, users: [{user: %q, password: %q}], exports: [%s]}\n%s}\n",
		daemonAccount, daemonUser, e.password, exports.String(), others.String())
}

// EnsureApp makes credentials for a push connection unless it has some or they were revoked. Credentials that name another address than the
// server's present one are corrected. It blocks until the server knows the user. It is safe to repeat.
func (b *Bus) EnsureApp(connection string) error {
	if b.embedded == nil {
		return nil // an external server's users are its operator's
	}
	a := b.embedded.apps
	a.mu.Lock()
	f, have := a.all[connection]
	revoked := a.off[connection]
	a.mu.Unlock()
	if url := b.embedded.clientURL(); have && url != "" && url != f.URL {
		f.URL = url
		return a.store(connection, f)
	}
	if have || revoked {
		return nil
	}
	_, err := b.AddApp(connection)
	return err
}

// AddApp makes new credentials for a push connection; earlier ones end. It blocks until the server knows the user.
func (b *Bus) AddApp(connection string) (App, error) {
	e := b.embedded
	if e == nil {
		return App{}, fmt.Errorf("%w: users of an external NATS server are made there", triggerd.ErrConflict)
	}
	if err := triggerd.ValidName(connection); err != nil {
		return App{}, fmt.Errorf("add app: %w", err)
	}
	f := appFile{
		Description: "triggerd app for the connection " + connection,
		URL:         e.clientURL(),
		User:        connection,
		Password:    rand.Text(),
		InboxPrefix: "_INBOX_" + connection,
	}
	if err := e.apps.store(connection, f); err != nil {
		return App{}, err
	}
	// In two steps, because the server starts to serve the imports of an account that a reload brings with the next reload only.
	if err := e.reloadUsers(connection); err != nil {
		return App{}, err
	}
	if err := e.reloadUsers(""); err != nil {
		return App{}, err
	}
	return e.app(connection), nil
}

// RemoveApp revokes a push connection's credentials; the app is disconnected. It is safe to repeat.
func (b *Bus) RemoveApp(connection string) (App, error) {
	e := b.embedded
	if e == nil {
		return App{}, fmt.Errorf("%w: users of an external NATS server are removed there", triggerd.ErrConflict)
	}
	if err := triggerd.ValidName(connection); err != nil {
		return App{}, fmt.Errorf("remove app: %w", err)
	}
	if err := e.apps.revoke(connection); err != nil {
		return App{}, err
	}
	if err := e.reloadUsers(""); err != nil {
		return App{}, err
	}
	return e.app(connection), nil
}

// AppFor tells about a push connection's user; Enabled is false where there is none.
func (b *Bus) AppFor(connection string) App {
	if b.embedded == nil {
		return App{Connection: connection, Subjects: b.Names.PushSubjects(connection)}
	}
	return b.embedded.app(connection)
}

func (e *embedded) app(connection string) App {
	e.apps.mu.Lock()
	defer e.apps.mu.Unlock()
	app := App{Connection: connection, Subjects: e.names.PushSubjects(connection), URL: e.clientURL()}
	if f, ok := e.apps.all[connection]; ok {
		app.User, app.File, app.Enabled = f.User, filepath.Join(e.apps.dir, connection+".json"), true
	}
	return app
}

func (e *embedded) reloadUsers(waits string) error {
	srv := e.server()
	if srv == nil {
		return fmt.Errorf("change app users: %w", triggerd.ErrUnavailable)
	}
	o, err := e.serverOptions(waits)
	if err != nil {
		return err
	}
	if err := srv.ReloadOptions(o); err != nil {
		return fmt.Errorf("change app users: %w", err)
	}
	return nil
}

func (a *apps) store(connection string, f appFile) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("encode app credentials: %w", err)
	}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return fmt.Errorf("create folder for app credentials: %w", err)
	}
	if err := writeFile(filepath.Join(a.dir, connection+".json"), append(b, '\n')); err != nil {
		return fmt.Errorf("write app credentials: %w", err)
	}
	if err := os.Remove(filepath.Join(a.dir, connection+revokedSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write app credentials: %w", err)
	}
	a.all[connection] = f
	delete(a.off, connection)
	return nil
}

func (a *apps) revoke(connection string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return fmt.Errorf("create folder for app credentials: %w", err)
	}
	if err := writeFile(filepath.Join(a.dir, connection+revokedSuffix), nil); err != nil {
		return fmt.Errorf("revoke app credentials: %w", err)
	}
	if err := os.Remove(filepath.Join(a.dir, connection+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("revoke app credentials: %w", err)
	}
	delete(a.all, connection)
	a.off[connection] = true
	return nil
}

// writeFile replaces path durably: temporary file, sync, rename, sync of the folder. Mode 0600.
func writeFile(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".tmp-*") // CreateTemp uses 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}
