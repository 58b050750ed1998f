package admin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen/store"
)

// Limits on the time of a backup. Until it ends, the disk space of a data file that compaction has replaced is not
// free.
const (
	chunkTimeout  = 30 * time.Second // for the client to take a part
	backupTimeout = time.Hour
)

// backups serves backups, one at a time.
type backups struct {
	write        func(context.Context, io.Writer) error // nil if the store has none
	logger       *slog.Logger
	chunkTimeout time.Duration
	busy         atomic.Bool
}

// ServeHTTP sends a backup; see [http.Handler]. If it fails after the status was sent, the connection is cut off, so
// that the client does not take it for complete.
func (b *backups) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case b.write == nil:
		writeLine(w, http.StatusNotImplemented, "the store is Redis: use the backup of Redis, such as BGSAVE")
		return
	case !b.busy.CompareAndSwap(false, true):
		writeLine(w, http.StatusConflict, "another backup is in progress")
		return
	}
	defer b.busy.Store(false)
	ctx, cancel := context.WithTimeout(r.Context(), backupTimeout)
	defer cancel()
	out := &backupWriter{to: w, controller: http.NewResponseController(w), timeout: b.chunkTimeout}
	err := b.write(ctx, out)
	if err == nil {
		err = out.controller.Flush() // by now, the client has all but what the kernel buffers
	}
	switch {
	case err == nil:
		b.logger.Info("backup sent", "bytes", out.sent)
	case out.sent > 0:
		b.logger.Error("backup failed", "error", err, "bytes", out.sent)
		panic(http.ErrAbortHandler)
	default:
		b.logger.Error("backup failed", "error", err)
		writeLine(w, backupStatus(err), err.Error())
	}
}

func backupStatus(err error) int {
	if errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrClosed) {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// backupWriter is a response whose deadline moves with each part of it.
type backupWriter struct {
	to         http.ResponseWriter
	controller *http.ResponseController
	timeout    time.Duration
	sent       int64
}

// Write sends a part; see [io.Writer].
func (w *backupWriter) Write(p []byte) (int, error) {
	if err := w.controller.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
		return 0, err
	}
	if w.sent == 0 {
		w.to.Header().Set("Content-Type", "application/octet-stream")
		w.to.Header().Set("Cache-Control", "no-store")
	}
	n, err := w.to.Write(p)
	w.sent += int64(n)
	return n, err
}
