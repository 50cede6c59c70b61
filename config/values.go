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

// The readers below parse a key's JSON value. Their errors state the expected
// form only; the caller adds key and value.

// setter returns a key's set function: it reads the JSON value into a field.
func setter[T any](field func(*NetConf) *T, read func(json.RawMessage) (T, error)) func(*NetConf, json.RawMessage) error {
	return func(conf *NetConf, raw json.RawMessage) error {
		value, err := read(raw)
		if err != nil {
			return err
		}
		*field(conf) = value
		return nil
	}
}

// typed reads a JSON value of type T. Null is an error.
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

func oneOf[T ~string](allowed ...T) func(json.RawMessage) (T, error) {
	return func(raw json.RawMessage) (T, error) {
		want := fmt.Sprintf("one of %q", allowed)
		value, err := typed[T](raw, want)
		if err == nil && !slices.Contains(allowed, value) {
			err = errors.New("expected " + want)
		}
		return value, err
	}
}

// fileNamed reads the path of a file whose name is fixed. The plugin itself
// checks that the directory is allowed.
func fileNamed(name string) func(raw json.RawMessage) (string, error) {
	want := "an absolute path that ends in /" + name
	return func(raw json.RawMessage) (string, error) {
		path, err := typed[string](raw, want)
		if err == nil && (!filepath.IsAbs(path) || filepath.Clean(path) != path || filepath.Base(path) != name) {
			err = errors.New("expected " + want)
		}
		return path, err
	}
}

func agentSocket(raw json.RawMessage) (string, error) {
	if bytes.Equal(raw, []byte(`""`)) {
		return "", nil
	}
	return fileNamed(AgentSocketName)(raw)
}

func lookupTimeout(raw json.RawMessage) (time.Duration, error) {
	const want = `a duration from "1s" to "2m"`
	text, err := typed[string](raw, want)
	if err != nil {
		return 0, err
	}
	duration, err := time.ParseDuration(text)
	if err != nil || duration < time.Second || duration > 2*time.Minute {
		return 0, errors.New("expected " + want)
	}
	return duration, nil
}

// namespaceOrPrefix refuses an empty prefix: it would exclude every pod.
func namespaceOrPrefix(raw json.RawMessage) (string, error) {
	const want = "a namespace, or a prefix such as openshift-* with * only at its end"
	text, err := typed[string](raw, want)
	prefix := strings.TrimSuffix(text, "*")
	if err == nil && (prefix == "" || strings.TrimSpace(prefix) != prefix || strings.Contains(prefix, "*")) {
		err = errors.New("expected " + want)
	}
	return text, err
}

// className reads the name of a runtime class, or a prefix of names with a
// trailing *.
func className(raw json.RawMessage) (string, error) {
	const want = "a name, with * only at its end"
	text, err := typed[string](raw, want)
	if err == nil && (text == "" || strings.TrimSpace(text) != text || strings.Contains(strings.TrimSuffix(text, "*"), "*")) {
		err = errors.New("expected " + want)
	}
	return text, err
}

func logLevel(raw json.RawMessage) (slog.Level, error) {
	text, err := oneOf("debug", "info", "warn", "error")(raw)
	if err != nil {
		return 0, err
	}
	var level slog.Level
	return level, level.UnmarshalText([]byte(text))
}

func port(raw json.RawMessage) (uint16, error) {
	const want = "a port number from 1 to 65535"
	value, err := typed[uint16](raw, want)
	if err == nil && value == 0 {
		err = errors.New("expected " + want)
	}
	return value, err
}

func groupID(raw json.RawMessage) (uint32, error) {
	return typed[uint32](raw, "a numeric id from 0 to 4294967295")
}

// id reads the proxy's uid or gid. It can't be root's: all traffic of root's
// processes would escape capture.
func id(raw json.RawMessage) (uint32, error) {
	const want = "a numeric id from 1 to 4294967295"
	value, err := typed[uint32](raw, want)
	if err == nil && value == 0 {
		err = errors.New("expected " + want)
	}
	return value, err
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
	if err != nil {
		return prefix, err
	}
	if !prefix.Addr().Is4() || !prefix.Addr().IsLoopback() || prefix.Bits() < 8 {
		return prefix, errors.New("expected a range within 127.0.0.0/8")
	}
	return prefix, nil
}
