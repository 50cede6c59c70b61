// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The functions below parse the JSON values of keys. Their errors do not name the key, because the
// caller adds the key and the value.

// into returns a function, for the field set of a Key, that parses a JSON value and stores the result.
func into[T any](field *T, read func(json.RawMessage) (T, error)) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		value, err := read(raw)
		if err == nil {
			*field = value
		}
		return err
	}
}

// typed decodes a JSON value of type T. It returns an error for null and for another type.
func typed[T any](raw json.RawMessage, want string) (T, error) {
	var value T
	if bytes.Equal(raw, []byte("null")) || json.Unmarshal(raw, &value) != nil {
		return value, errors.New("expected " + want)
	}
	return value, nil
}

func each[T any](read func(json.RawMessage) (T, error)) func(json.RawMessage) ([]T, error) {
	return func(raw json.RawMessage) ([]T, error) {
		elements, err := typed[[]json.RawMessage](raw, "a list")
		if err != nil {
			return nil, err
		}
		var values []T
		var faults []string
		for i, element := range elements {
			value, err := read(element)
			if err != nil {
				faults = append(faults, fmt.Sprintf("element %d: %v", i, err))
			}
			values = append(values, value)
		}
		if len(faults) > 0 {
			return values, errors.New(strings.Join(Few(faults, "elements are faulty"), "\n"))
		}
		return values, nil
	}
}

// valid returns a function that decodes a JSON value of type T. The function returns an error for null,
// for another type, and for a value for which ok returns false.
func valid[T any](want string, ok func(T) bool) func(json.RawMessage) (T, error) {
	return func(raw json.RawMessage) (T, error) {
		value, err := typed[T](raw, want)
		if err == nil && !ok(value) {
			err = errors.New("expected " + want)
		}
		return value, err
	}
}

func oneOf[T ~string](allowed ...T) func(json.RawMessage) (T, error) {
	return func(raw json.RawMessage) (T, error) { // format the text only for a key that is set
		return valid(fmt.Sprintf("one of %q", allowed), func(value T) bool { return slices.Contains(allowed, value) })(raw)
	}
}

// fileNamed returns a function that reads the absolute path of a file with this name. Unless orEmpty is "",
// the function also accepts an empty path, and its errors end with orEmpty. The plugin checks later whether
// the file's directory is allowed.
func fileNamed(name, orEmpty string) func(json.RawMessage) (string, error) {
	return valid("an absolute path that ends in /"+name+", without ., .. or //"+orEmpty, func(path string) bool {
		return filepath.IsAbs(path) && filepath.Clean(path) == path && filepath.Base(path) == name || path == "" && orEmpty != ""
	})
}

// meshNames reads the names of the meshes whose pods are captured. It returns an error for an empty
// list, with which no pod would be captured.
func meshNames(raw json.RawMessage) ([]MeshName, error) {
	names, err := each(oneOf(Meshes()...))(raw)
	if err == nil && len(names) == 0 {
		err = errors.New("expected at least one mesh")
	}
	return names, err
}

func lookupTimeout(raw json.RawMessage) (time.Duration, error) {
	var duration time.Duration
	_, err := valid(`a duration from "1s" to "2m"`, func(text string) bool {
		var err error
		duration, err = time.ParseDuration(text)
		return err == nil && duration >= time.Second && duration <= 2*time.Minute
	})(raw)
	return duration, err
}

var (
	agentSocket = fileNamed(AgentSocketName, `, or ""`)

	// namespaceOrPrefix reads a namespace, or a prefix with a trailing *. It refuses an empty prefix,
	// which would mean every namespace.
	namespaceOrPrefix = valid("a namespace, or a prefix such as openshift-* with * only at its end", func(text string) bool {
		prefix := strings.TrimSuffix(text, "*")
		return prefix != "" && strings.TrimSpace(prefix) == prefix && !strings.Contains(prefix, "*")
	})

	// className reads the name of a runtime class, or a prefix with a trailing *.
	className = valid("a name, or a prefix such as kata-* with * only at its end", func(text string) bool {
		return text != "" && strings.TrimSpace(text) == text && !strings.Contains(strings.TrimSuffix(text, "*"), "*")
	})

	port    = valid("a port number from 1 to 65535", func(port uint16) bool { return port != 0 })
	groupID = valid("a numeric id from 0 to 4294967295", func(uint32) bool { return true })

	// id reads a uid or gid of the proxy. It refuses 0, because then the traffic of all processes of
	// root would escape capture.
	id = valid("a numeric id from 1 to 4294967295", func(id uint32) bool { return id != 0 })
)

func logLevel(raw json.RawMessage) (slog.Level, error) {
	text, err := oneOf("debug", "info", "warn", "error")(raw)
	if err != nil {
		return 0, err
	}
	var level slog.Level
	return level, level.UnmarshalText([]byte(text))
}

func cidr(raw json.RawMessage) (netip.Prefix, error) {
	text, err := typed[string](raw, "a range such as 10.0.0.0/8 or 2001:db8::/32")
	if err != nil {
		return netip.Prefix{}, err
	}
	return ParsePrefix(text)
}

func loopback(raw json.RawMessage) (netip.Prefix, error) {
	prefix, err := cidr(raw)
	if err == nil && (!prefix.Addr().Is4() || !prefix.Addr().IsLoopback() || prefix.Bits() < 8) {
		err = errors.New("expected a range within 127.0.0.0/8")
	}
	return prefix, err
}
