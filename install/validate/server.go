// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/capture-cni/capture-cni/install/report"
)

// Serve runs the application of the test's server. It writes a TestLine to each connection, until ctx
// ends.
func Serve(ctx context.Context, ports []uint) error {
	for _, number := range ports {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf(":%d", number))
		if err != nil {
			return fmt.Errorf("listening as the application: %w", err)
		}
		defer listener.Close()
		go accept(listener, answer)
	}
	<-ctx.Done()
	return nil
}

func answer(client *net.TCPConn) {
	_ = client.SetDeadline(time.Now().Add(connectionTimeout))
	line := report.TestLine{By: report.TestApplication, Client: address(client.RemoteAddr()).Addr()}
	_ = json.NewEncoder(client).Encode(line) // the client sees its connection end
}
