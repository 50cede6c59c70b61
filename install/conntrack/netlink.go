// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/nlsocket"
)

// dump returns the parsed objects of a dump, at most most of them. complete reports
// whether these are all. It leaves out those for which parse returns false.
func dump[T any](ctx context.Context, protocol int, kind uint16, request []byte, most int, parse func(body []byte) (T, bool)) (found []T, complete bool, err error) {
	s, err := nlsocket.Dial(protocol)
	if err != nil {
		return nil, false, err
	}
	defer s.Close()
	if err := s.Send(nlsocket.AppendMessage(nil, kind, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, 0, request)); err != nil {
		return nil, false, err
	}
	complete = true
	err = s.Receive(ctx, func(m syscall.NetlinkMessage) (bool, error) {
		if m.Header.Type == unix.NLMSG_DONE || m.Header.Type == unix.NLMSG_ERROR {
			return false, nlsocket.ErrorOf(m.Data)
		}
		object, ok := parse(m.Data)
		if ok && len(found) == most {
			complete = false
		} else if ok {
			found = append(found, object)
		}
		return complete, nil
	})
	return found, complete, err
}
