// SPDX-License-Identifier: Apache-2.0

package guard

import "log/slog"

// onceLog logs errors that each round would repeat.
type onceLog struct {
	log  *slog.Logger
	last map[string]string // the last error that was logged, by message
}

func newOnceLog(log *slog.Logger) *onceLog { return &onceLog{log: log, last: map[string]string{}} }

// warn logs an error, unless it is the last one that was logged with this message.
func (o *onceLog) warn(message string, err error) {
	if err != nil && err.Error() != o.last[message] {
		o.log.Warn(message, "error", err)
		o.last[message] = err.Error()
	}
}

// forget has the next error with this message logged.
func (o *onceLog) forget(message string) { delete(o.last, message) }
