// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// Types of configuration, as istiod names them.
const (
	clusters  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	listeners = "type.googleapis.com/envoy.config.listener.v3.Listener"
)

// agentSocket is where pilot-agent forwards Envoy's subscription to istiod.
const agentSocket = "unix:///etc/istio/proxy/XDS"

const discoveryMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"

// Fields of the messages envoy.service.discovery.v3.DiscoveryRequest and
// DiscoveryResponse, and of envoy.config.core.v3.Node.
const (
	requestVersion, requestNode, requestType, requestNonce = 1, 2, 4, 5
	responseVersion, responseType, responseNonce           = 1, 4, 5
	nodeID, nodeCluster, nodeMetadata                      = 1, 2, 3
)

// subscriber subscribes to configuration as Envoy does, in the name of the node that
// pilot-agent wrote into Envoy's bootstrap configuration.
type subscriber struct{ node []byte }

func readBootstrap(path string) (*subscriber, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var bootstrap struct {
		Node struct {
			ID, Cluster string
			Metadata    map[string]any
		}
	}
	if err := json.Unmarshal(text, &bootstrap); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	metadata, err := structpb.NewStruct(bootstrap.Node.Metadata)
	if err != nil {
		return nil, fmt.Errorf("reading the node of %s: %w", path, err)
	}
	encoded, err := proto.Marshal(metadata)
	if err != nil {
		return nil, err
	}
	node := appendText(nil, nodeID, bootstrap.Node.ID)
	node = appendText(node, nodeCluster, bootstrap.Node.Cluster)
	return &subscriber{node: appendText(node, nodeMetadata, string(encoded))}, nil
}

func appendText(message []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(message, field, protowire.BytesType), text)
}

// run subscribes until ctx ends, and again where the stream ends earlier.
func (s *subscriber) run(ctx context.Context, receive func(configurationType string)) {
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if err := s.stream(ctx, receive); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "the stream of configuration ended:", err)
		}
	}
}

func (s *subscriber) stream(ctx context.Context, receive func(configurationType string)) error {
	connection, err := grpc.NewClient(agentSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	stream, err := connection.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, discoveryMethod, grpc.ForceCodec(rawCodec{}))
	if err != nil {
		return err
	}
	for _, configurationType := range []string{clusters, listeners} {
		request := appendText(appendText(nil, requestNode, string(s.node)), requestType, configurationType)
		if err := stream.SendMsg(request); err != nil {
			return err
		}
	}
	for {
		var response []byte
		if err := stream.RecvMsg(&response); err != nil {
			return err
		}
		fields, err := texts(response)
		if err != nil {
			return err
		}
		receive(fields[responseType])
		acknowledgement := appendText(nil, requestVersion, fields[responseVersion])
		acknowledgement = appendText(acknowledgement, requestType, fields[responseType])
		if err := stream.SendMsg(appendText(acknowledgement, requestNonce, fields[responseNonce])); err != nil {
			return err
		}
	}
}

// texts returns the last value of each field of a message that is text or bytes.
func texts(message []byte) (map[protowire.Number]string, error) {
	fields := map[protowire.Number]string{}
	for len(message) > 0 {
		field, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		message = message[size:]
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			fields[field] = string(value)
		}
		if size = protowire.ConsumeFieldValue(field, kind, message); size < 0 {
			return nil, protowire.ParseError(size)
		}
		message = message[size:]
	}
	return fields, nil
}

// rawCodec leaves messages encoded.
type rawCodec struct{}

func (rawCodec) Marshal(message any) ([]byte, error) { return message.([]byte), nil }

func (rawCodec) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (rawCodec) Name() string { return "proto" }
