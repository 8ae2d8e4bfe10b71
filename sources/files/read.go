package files

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/triggerd/triggerd"
)

// Types of events.
const (
	Created = "file.created"
	Changed = "file.changed"
)

// maxHash bounds how much of a file's content goes into its event's id.
const maxHash = 64 << 20

// Payload is an event's payload. Content is there for files up to the connection's max_read: as text when it is valid UTF-8,
// else in base64.
type Payload struct {
	Path          string            `json:"path"`
	Name          string            `json:"name"` // the last part of the path
	Size          int64             `json:"size"`
	MTime         time.Time         `json:"mtime"`
	Match         map[string]string `json:"match"` // what the pattern's {captures} read
	Content       *string           `json:"content,omitempty"`
	ContentBase64 []byte            `json:"content_base64,omitempty"`
	Error         string            `json:"error,omitempty"` // why there is no content although it is small enough
}

// errChanging: the file changed while it was read; it has not settled.
var errChanging = errors.New("file is changing")

// found is a settled file with its event.
type found struct {
	path    string
	state   state
	event   triggerd.Event
	payload Payload
}

// read makes the event of a file. A file that cannot be read still gives one, with the reason in it; errors are only those that say
// that there is nothing to tell: it is gone ([fs.ErrNotExist]), it is no regular file, or it is changing.
func read(path, typ string, captured map[string]string, maxRead int64) (*found, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fs.ErrNotExist
	}
	f := &found{path: path, state: stateOf(info)}
	f.payload = Payload{Path: path, Name: filepath.Base(path), Size: info.Size(), MTime: info.ModTime().UTC(), Match: captured}
	content, sum, err := f.content(maxRead)
	switch {
	case errors.Is(err, errChanging), errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err != nil:
		f.payload.Error = reason(err)
	case maxRead <= 0 || info.Size() > maxRead:
	case utf8.Valid(content):
		text := string(content)
		f.payload.Content = &text
	default:
		f.payload.ContentBase64 = content
	}
	f.event = triggerd.Event{
		ID:          triggerd.HashID(strings.Join([]string{path, fmt.Sprint(f.state.size), fmt.Sprint(f.state.mtime), sum}, "\x00")),
		Type:        typ,
		Time:        info.ModTime(),
		ContentType: "application/json",
	}
	return f, f.encode()
}

func (f *found) encode() (err error) {
	if f.event.Payload, err = json.Marshal(f.payload); err != nil {
		return fmt.Errorf("encode file event: %w", err)
	}
	return nil
}

// withoutContent leaves the content out, with the reason.
func (f *found) withoutContent(why error) error {
	f.payload.Content, f.payload.ContentBase64, f.payload.Error = nil, nil, "content left out: "+why.Error()
	return f.encode()
}

// content reads up to maxRead bytes and hashes up to maxHash. It checks that what it read is the state that was found.
func (f *found) content(maxRead int64) (content []byte, sum string, err error) {
	// Without O_NONBLOCK a pipe that took the file's place would block for ever.
	file, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, "", err
	}
	defer file.Close()
	h := sha256.New()
	if maxRead > 0 && f.state.size <= maxRead {
		if content, err = io.ReadAll(io.LimitReader(file, maxRead+1)); err != nil {
			return nil, "", err
		}
		h.Write(content)
	}
	if _, err := io.Copy(h, io.LimitReader(file, maxHash-int64(len(content)))); err != nil {
		return nil, "", err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, "", err
	}
	if !stateOf(info).same(f.state) || content != nil && int64(len(content)) != f.state.size {
		return nil, "", errChanging
	}
	return content, hex.EncodeToString(h.Sum(nil)), nil
}

// reason is an error's text without the path, which the payload has already.
func reason(err error) string {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Op + ": " + pe.Err.Error()
	}
	return err.Error()
}

func stateOf(info fs.FileInfo) state {
	return state{size: info.Size(), mtime: info.ModTime().UnixNano(), ctime: ctimeOf(info)}
}
