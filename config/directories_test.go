// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
	"testing"
)

func TestParseDirectories(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		content string
		want    []string
		fault   string
	}{
		{"", nil, ""},
		{"# a comment\n\n  /a/b  \n/c", []string{"/a/b", "/c"}, ""},
		{"/a\r\n/b\r\n", []string{"/a", "/b"}, ""},
		{"a", nil, "absolute path"},
		{"/a/../b", nil, "absolute path"},
		{"/a/", nil, "absolute path"},
		{strings.Repeat("/a\n", 64), slices.Repeat([]string{"/a"}, 64), ""},
		{strings.Repeat("/a\n", 65), nil, "at most 64"},
	} {
		got, err := ParseDirectories([]byte(test.content))
		switch {
		case test.fault == "" && (err != nil || !slices.Equal(got, test.want)):
			t.Errorf("%q: got %q, %v", test.content, got, err)
		case test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)):
			t.Errorf("%q: got error %v, want one with %q", test.content, err, test.fault)
		}
	}
}

func TestFormatDirectories(t *testing.T) {
	t.Parallel()
	const want = "# Directories that capture-cni may read credentials from, besides /var/lib/capture-cni and /run/capture-cni.\n/a\n/b\n"
	if got := string(FormatDirectories([]string{"/a", "/b"})); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzParseDirectories(f *testing.F) {
	f.Add([]byte("# c\n/a/b\n\n/c"))
	f.Add([]byte("/a//b"))
	f.Fuzz(func(t *testing.T, content []byte) {
		directories, err := ParseDirectories(content)
		if err != nil {
			return
		}
		again, err := ParseDirectories(FormatDirectories(directories))
		if err != nil || !slices.Equal(again, directories) {
			t.Errorf("%q became %q, %v", directories, again, err)
		}
	})
}
