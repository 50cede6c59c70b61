// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/report"
)

// maxListFiles limits the number of lists and drop-ins that writeLists reads.
const maxListFiles = 256

type listEvidence struct {
	File     string     `json:"file"`
	Size     int64      `json:"size"`
	Mode     string     `json:"mode"`
	Modified time.Time  `json:"modified"`
	Owner    string     `json:"owner"` // uid:gid
	Unread   string     `json:"unread,omitempty"`
	List     any        `json:"list,omitempty"`
	Own      []ownEntry `json:"own,omitempty"`
}

// ownEntry describes an entry of capture-cni, in a list or in a file of its own.
type ownEntry struct {
	Keys    map[string]any `json:"keys,omitempty"`    // documented keys with well-formed values
	Unknown int            `json:"unknown,omitempty"` // number of NetConf's warnings about unknown keys
	Faulty  []string       `json:"faulty,omitempty"`  // documented keys with malformed values
}

// writeLists writes a line of JSON for each of the first maxListFiles files that lists returns, in the
// order of the names, with the drop-ins last.
func (n *Node) writeLists(_ context.Context, out io.Writer) error {
	names, err := n.lists()
	if len(names) > maxListFiles {
		err = errors.Join(err, fmt.Errorf("%s has %d files: %d are listed", n.Settings.NetDir, len(names), maxListFiles))
		names = names[:maxListFiles]
	}
	encoder := json.NewEncoder(out)
	for _, name := range names {
		if err := encoder.Encode(n.listEvidence(name)); err != nil {
			return err
		}
	}
	return err
}

// lists returns the names of the runtime's lists, of lists that another program has disabled by
// renaming them, and of drop-ins.
func (n *Node) lists() (names []string, err error) {
	err = n.within(n.Settings.NetDir, func(net *host.Dir) error {
		names, err = net.Names()
		return err
	})
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.Contains(name, ".conf") && !strings.HasSuffix(name, ".json") })
	dropIns, dropInErr := filepath.Glob(n.Settings.At(n.Settings.NetDir) + "/*/*.conf*")
	for _, path := range dropIns {
		names = append(names, filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path))
	}
	return names, dropInErr
}

func (n *Node) listEvidence(name string) listEvidence {
	e := listEvidence{File: report.Plain(name)}
	path := n.Settings.At(n.Settings.NetDir) + "/" + name
	info, err := os.Lstat(path)
	if err != nil {
		e.Unread = withoutPath(err).Error()
		return e
	}
	e.Size, e.Mode, e.Modified = info.Size(), info.Mode().String(), info.ModTime().UTC()
	if at, ok := info.Sys().(*syscall.Stat_t); ok {
		e.Owner = fmt.Sprintf("%d:%d", at.Uid, at.Gid)
	}
	text, err := host.ReadFile(path)
	var outline conflist.Outline
	if err == nil {
		outline, err = conflist.OutlineOf(text)
	}
	if err != nil {
		e.Unread = withoutPath(err).Error()
		return e
	}
	e.List = outline
	for _, plugin := range outline.Plugins {
		if plugin.Own != nil {
			e.Own = append(e.Own, ownEntryOf(plugin.Own))
		}
	}
	return e
}

// withoutPath returns only the error of the system call, because the evidence already contains the
// file's name.
func withoutPath(err error) error {
	if failed, ok := errors.AsType[*os.PathError](err); ok {
		return failed.Err
	}
	return err
}

// ownEntryOf describes an entry of ours by the documented keys with well-formed values, which contain no
// secrets, the names of those with malformed values, and the number of warnings about unknown keys.
func ownEntryOf(entry json.RawMessage) (own ownEntry) {
	var fields map[string]json.RawMessage
	input, err := config.Read(entry)
	if err != nil || json.Unmarshal(entry, &fields) != nil {
		return own
	}
	own.Keys = own.documented(fields, config.Keys(new(config.NetConf)), "")
	_, unknown, _ := input.NetConf() // dropped, because the error quotes values
	own.Unknown = len(unknown)
	return own
}

func (own *ownEntry) documented(fields map[string]json.RawMessage, keys []config.Key, path string) map[string]any {
	kept := map[string]any{}
	for _, key := range keys {
		value, ok := fields[key.Name]
		if !ok {
			continue
		}
		var inner map[string]json.RawMessage
		switch {
		case key.Keys != nil && json.Unmarshal(value, &inner) == nil:
			kept[key.Name] = own.documented(inner, key.Keys, path+key.Name+".")
		case key.Accepts(value):
			kept[key.Name] = value
		default:
			own.Faulty = append(own.Faulty, path+key.Name)
		}
	}
	return kept
}
