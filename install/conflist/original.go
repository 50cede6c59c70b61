// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// originalSuffix is the suffix that releases before 0.4 appended to the name of a plain configuration
// when they converted it to a list. No runtime loads a file with this suffix.
const originalSuffix = ".capture-cni-original"

// originals returns the names of the plain configurations that an earlier release renamed, with originalSuffix.
func originals(net Net) []string {
	names, _ := net.Names()
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, originalSuffix) })
}

// stem returns a file's name without its extension. The extension of an original is originalSuffix.
func stem(name string) string { return strings.TrimSuffix(name, filepath.Ext(name)) }

// restoreOriginal restores a plain configuration that an earlier release renamed. The runtime then
// loads the plain file, and the caller removes the list that the release made from it. If another
// program has since given either file other content, restoreOriginal changes nothing and returns an error.
func restoreOriginal(net Net, original string) error {
	conf, made := stem(original), stem(stem(original))+".conflist"
	text, err := net.Read(original)
	if err != nil {
		return err
	}
	switch current, err := net.Read(conf); {
	case err == nil && bytes.Equal(current, text):
		return net.Remove(original)
	case err == nil:
		return fmt.Errorf("%[1]s/%[2]s, which an earlier release of the agent renamed, "+
			"differs from the %[3]s that its owner has written since: delete %[2]s", net.Path(), original, conf)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	list, _ := readListWithEntry(net, made)
	var without []byte
	if list != nil {
		without, _ = list.Without()
	}
	if found, err := net.Has(made); err != nil || found && !isMadeOf(net, without, original) {
		return errors.Join(err, fmt.Errorf("%[1]s/%[2]s, which an earlier release of the agent renamed, "+
			"would replace %[3]s, which another program has written: "+
			"delete %[2]s, or rename it to %[4]s and delete %[3]s", net.Path(), original, made, conf))
	}
	return net.Rename(original, conf)
}

// isMadeOf reports whether a list is the one that an earlier release made from a plain configuration.
func isMadeOf(net Net, list []byte, conf string) bool {
	text, _ := net.Read(conf) // a text that was not read is no configuration
	made, err := fromConf(text)
	return err == nil && bytes.Equal(made, list)
}
