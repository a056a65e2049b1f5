package cache

import (
	"bytes"
	"compress/zlib"
	"context"
	"database/sql"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// applicationID marks the file as ours in SQLite's header ("ccmd"), so that
// another program's database is never written to.
const applicationID = 0x63636d64

// busyTimeout is how long one process waits for another one's writing.
const busyTimeout = 30 * time.Second

const schema = `CREATE TABLE IF NOT EXISTS answers (
	key    BLOB PRIMARY KEY,
	answer BLOB NOT NULL
) WITHOUT ROWID`

// DB is a file of answers. It is safe for concurrent use, and several DBs, of
// one process or of many, may use one file.
type DB struct {
	// OnFailure is told once, of the first answer that could not be kept or looked
	// up: from then on none are, since no answer may be lost because of its copy.
	// Set it before the first request; nil tells nobody.
	OnFailure func(error)

	path         string
	sql          *sql.DB
	write        sync.Mutex // SQLite lets one connection write; queueing here is fairer than its polling
	failed       atomic.Bool
	hits, misses atomic.Int64
}

// Open opens the response cache in the file path and makes the file, but not
// its folder, when it is missing. A file that is not a response cache is an
// error and stays as it is. Only its owner can read the file, since it holds what
// was asked and said; one that others could read is closed to them.
func Open(path string) (*DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open the response cache %s: %w", path, err)
	}
	if err := private(path); err != nil {
		return nil, err
	}
	slashed := filepath.ToSlash(abs)
	if !strings.HasPrefix(slashed, "/") { // a drive letter
		slashed = "/" + slashed
	}
	dsn := url.URL{Scheme: "file", Path: slashed, RawQuery: url.Values{
		"_pragma": {fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()), "synchronous(normal)"},
		"_txlock": {"immediate"},
	}.Encode()}
	handle, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open the response cache %s: %w", path, err)
	}
	d := &DB{path: path, sql: handle}
	if err := d.prepare(context.Background()); err != nil {
		handle.Close()
		return nil, err
	}
	return d, nil
}

// private makes the file for its owner alone. The files that SQLite puts beside
// it take its mode.
func private(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		return f.Close()
	}
	if !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("open the response cache %s: %w; name another file with --cache, or give --cache off", path, err)
	}
	s, err := os.Stat(path)
	if err != nil || !s.Mode().IsRegular() {
		return fmt.Errorf("open the response cache %s: it is no regular file; name another with --cache", path)
	}
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		if s, err := os.Lstat(name); err == nil && s.Mode().Perm()&0o077 != 0 {
			_ = os.Chmod(name, s.Mode().Perm()&0o700) // a file of somebody else's stays as it is
		}
	}
	return nil
}

// prepare checks whose file it is before anything is written to it.
func (d *DB) prepare(ctx context.Context) error {
	c, err := d.sql.Conn(ctx)
	if err != nil {
		return d.fault("open", err)
	}
	defer c.Close()
	var id, tables int
	err = c.QueryRowContext(ctx, "SELECT (SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_schema)").Scan(&id, &tables)
	if err != nil {
		return d.fault("open", err)
	}
	if id != applicationID && (id != 0 || tables > 0) {
		return fmt.Errorf("%s is the database of another program, not a response cache; name another file", d.path)
	}
	if err := useWAL(ctx, c); err != nil {
		return d.fault("open", err)
	}
	if id == applicationID && tables > 0 {
		return nil
	}
	tx, err := c.BeginTx(ctx, nil)
	if err != nil {
		return d.fault("set up", err)
	}
	defer tx.Rollback()
	for _, q := range []string{fmt.Sprintf("PRAGMA application_id = %d", applicationID), schema} {
		if _, err := tx.ExecContext(ctx, q); err != nil {
			return d.fault("set up", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return d.fault("set up", err)
	}
	return nil
}

// useWAL tries again by itself, because SQLite does not wait busy_timeout for
// the exclusive lock that a change of the journal mode takes.
func useWAL(ctx context.Context, c *sql.Conn) error {
	for deadline := time.Now().Add(busyTimeout); ; time.Sleep(10 * time.Millisecond) {
		_, err := c.ExecContext(ctx, "PRAGMA journal_mode = WAL")
		if err == nil || primary(err) != sqlite3.SQLITE_BUSY || time.Now().After(deadline) {
			return err
		}
	}
}

// Close closes the file. Backends wrapped with the DB must not be asked
// afterwards.
func (d *DB) Close() error {
	if err := d.sql.Close(); err != nil {
		return d.fault("close", err)
	}
	return nil
}

// Stats returns how many answers came out of the cache, and how many were asked
// for and not there, since Open. Requests under Bypass count as neither.
func (d *DB) Stats() (hits, misses int64) { return d.hits.Load(), d.misses.Load() }

// primary returns the primary SQLite result code of err, 0 when it has none.
func primary(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

func (d *DB) fault(doing string, err error) error {
	remedy := "check the file's permissions and the disk's space, or give --cache off"
	switch primary(err) {
	case sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%s is not a response cache (%w); move it away or name another file with --cache", d.path, err)
	case sqlite3.SQLITE_CORRUPT:
		remedy = "the file is damaged: delete it, and its answers are asked for again"
	case sqlite3.SQLITE_BUSY:
		remedy = "another process keeps it locked: wait for it, or name another file with --cache"
	}
	return fmt.Errorf("%s the response cache %s: %w; %s", doing, d.path, err, remedy)
}

// get decodes the answer under key into out, and reports whether there was one.
// A row that cannot be decoded counts as missing: the fresh answer replaces it.
func (d *DB) get(ctx context.Context, key []byte, out any) (bool, error) {
	if d.failed.Load() {
		return false, nil
	}
	var blob []byte
	err := d.sql.QueryRowContext(ctx, "SELECT answer FROM answers WHERE key = ?", key).Scan(&blob)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil && ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil && (primary(err) == sqlite3.SQLITE_CORRUPT || primary(err) == sqlite3.SQLITE_NOTADB):
		return false, d.fault("read", err)
	case err != nil:
		d.fail(d.fault("read", err))
		return false, nil
	}
	return decode(blob, out) == nil, nil
}

// row is one answer to be kept.
type row struct{ key, answer []byte }

// keep is put, until that fails for the first time.
func (d *DB) keep(ctx context.Context, rows []row) {
	if d.failed.Load() {
		return
	}
	if err := d.put(ctx, rows); err != nil {
		d.fail(err)
	}
}

func (d *DB) fail(err error) {
	if d.failed.CompareAndSwap(false, true) && d.OnFailure != nil {
		d.OnFailure(err)
	}
}

// put keeps all rows or none. It ignores that ctx is cancelled: the answers
// have been paid for.
func (d *DB) put(ctx context.Context, rows []row) error {
	if len(rows) == 0 {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	d.write.Lock()
	defer d.write.Unlock()
	tx, err := d.sql.BeginTx(ctx, nil)
	if err != nil {
		return d.fault("write to", err)
	}
	defer tx.Rollback()
	for _, r := range rows {
		if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO answers (key, answer) VALUES (?, ?)", r.key, r.answer); err != nil {
			return d.fault("write to", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return d.fault("write to", err)
	}
	return nil
}

// encode writes an infer.Reply or infer.Choice. Gob keeps what their JSON form
// leaves out (rendered prompt, usage) and the infinities that JSON cannot hold;
// zlib takes off most of the prompt's text and adds a checksum.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	if err := gob.NewEncoder(z).Encode(v); err != nil {
		return nil, fmt.Errorf("encode an answer for the response cache: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compress an answer for the response cache: %w", err)
	}
	return b.Bytes(), nil
}

func decode(b []byte, v any) error {
	z, err := zlib.NewReader(bytes.NewReader(b))
	if err != nil {
		return err
	}
	defer z.Close()
	plain, err := io.ReadAll(z) // to the end, where the checksum is
	if err != nil {
		return err
	}
	return gob.NewDecoder(bytes.NewReader(plain)).Decode(v)
}
