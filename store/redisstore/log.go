package redisstore

import (
	"context"
	"log/slog"
	"sync"
)

// onceLogger logs a repeated finding only when it changes. Its other methods are those of its logger.
type onceLogger struct {
	*slog.Logger

	mu     sync.Mutex
	logged map[topic]string
}

// topic is one type of remark about one server or namespace.
type topic struct{ subject, about string }

// logOnce logs a remark, unless the last one on the topic had the same value. With the value "" it logs nothing and
// ends the topic: the next remark on it is logged.
func (l *onceLogger) logOnce(level slog.Level, t topic, value, message string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock() // while it logs, so that the remark is in the log whenever a call returns
	before := l.logged[t]
	if l.logged == nil {
		l.logged = map[topic]string{}
	}
	if l.logged[t] = value; value != "" && value != before {
		l.Log(context.Background(), level, message, args...)
	}
}

// warnOnce logs the first remark of its type about a namespace.
func (s *Store) warnOnce(ns namespace, about, message string, args ...any) {
	args = append([]any{"namespace", ns.name, "key", ns.key}, args...)
	s.log.logOnce(slog.LevelWarn, topic{ns.name, about}, "found", message, args...)
}
