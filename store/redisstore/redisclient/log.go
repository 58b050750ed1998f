package redisclient

import (
	"context"
	"log/slog"
	"sync"
)

// OnceLogger logs a repeated finding only when it changes. Its other methods are those of its logger.
type OnceLogger struct {
	*slog.Logger

	mu     sync.Mutex
	logged map[topic]string
}

// topic is one type of remark about one server or namespace.
type topic struct{ subject, about string }

// LogOnce logs a remark about a subject, such as a server, unless the last one of this type had the same value. With
// the value "" it logs nothing, and the next remark is logged.
func (l *OnceLogger) LogOnce(level slog.Level, subject, about, value, message string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock() // while it logs, so that the remark is in the log whenever a call returns
	t := topic{subject, about}
	before := l.logged[t]
	if l.logged == nil {
		l.logged = map[topic]string{}
	}
	if l.logged[t] = value; value != "" && value != before {
		l.Log(context.Background(), level, message, args...)
	}
}

// LogIf is LogOnce for what is found or not.
func (l *OnceLogger) LogIf(found bool, level slog.Level, subject, about, message string, args ...any) {
	value := ""
	if found {
		value = "found"
	}
	l.LogOnce(level, subject, about, value, message, args...)
}
