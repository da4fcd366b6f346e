package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gnnactor/gnnactor/runtime"
)

// eventFile is one that TensorBoard reads: records of TFRecord's form, each a message Event of tensorflow/core/util/event.proto. A
// run that goes on adds a file of its own to the directory, which TensorBoard shows as one.
type eventFile struct {
	*lineLog
	figure splitFigure
	made   string // the directory, if there was none
}

// openEvents makes a file in dir, and dir; nil: it is not asked for.
func openEvents(dir string) (*eventFile, error) {
	const flag = "--tensorboard"
	if dir == "" {
		return nil, nil
	}
	e := new(eventFile)
	if err := os.Mkdir(dir, 0o755); err == nil {
		e.made = dir
	} else if info, at := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, usagef("%s: %w; make the directory above it first", flag, err)
	} else if at != nil {
		return nil, usagef("%s: %w; name another directory", flag, err)
	} else if !info.IsDir() {
		return nil, usagef("%s %s: that is no directory; name one", flag, dir)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	now := time.Now()
	e.lineLog, err = openLines(flag, filepath.Join(dir, fmt.Sprintf("events.out.tfevents.%010d.%s.%09d", now.Unix(), host, now.Nanosecond())))
	return e, err
}

// event writes those figures of an epoch that were measured, at its number, counted from 1.
func (f *eventFile) event(e runtime.Event) {
	if f == nil || e.Kind != runtime.EventEpoch {
		return
	}
	var b []byte
	now := time.Now()
	if f.empty() {
		b = appendRecord(b, protowire.AppendString(protowire.AppendTag(eventAt(now), 3, protowire.BytesType), "brain.Event:2")) // file_version
	}
	event := protowire.AppendVarint(protowire.AppendTag(eventAt(now), 2, protowire.VarintType), uint64(e.Epoch+1)) // step
	event = protowire.AppendBytes(protowire.AppendTag(event, 5, protowire.BytesType), summary(figures(e, f.figure)))
	f.write(appendRecord(b, event))
}

// eventAt begins an Event with its time, in seconds since 1970.
func eventAt(t time.Time) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), math.Float64bits(float64(t.UnixMicro())/1e6)) // wall_time
}

// summary is a message Summary of figures, without those that were not measured.
func summary(list []figure) (b []byte) {
	for _, f := range list[1:] { // the first is the epoch, the event's step
		if f.value-f.value != 0 {
			continue
		}
		value := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), f.name)                                 // tag
		value = protowire.AppendFixed32(protowire.AppendTag(value, 2, protowire.Fixed32Type), math.Float32bits(float32(f.value))) // simple_value
		b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), value)
	}
	return b
}

var eventTable = crc32.MakeTable(crc32.Castagnoli)

// maskedCRC is CRC-32C as TFRecord has it, masked, so that a record may hold records.
func maskedCRC(data []byte) uint32 {
	c := crc32.Checksum(data, eventTable)
	return (c>>15 | c<<17) + 0xa282ead8
}

// appendRecord appends data as a record of TFRecord: its length, the length's checksum, data, and its checksum.
func appendRecord(b, data []byte) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, maskedCRC(b[at:]))
	return binary.LittleEndian.AppendUint32(append(b, data...), maskedCRC(data))
}

func (f *eventFile) close() error {
	if f == nil {
		return nil
	}
	unused := f.empty()
	err := f.lineLog.close()
	if unused && f.made != "" {
		err = errors.Join(err, os.Remove(f.made))
	}
	return err
}
