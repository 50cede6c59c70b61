// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// printVerbs compares medians, those with the floor also by fifths of the turns: least and
// greatest show how far one run can be trusted.
func (b *bench) printVerbs(rows []*verb) error {
	lines := []string{"CALL\tp50 ms\tp90 ms\tp99 ms\tCPU ms\tPEAK MiB\tPROGRAMS\tREQUESTS\tx FLOOR\tIN FIFTHS\tx BARE FLOOR\tx EMPTY\tTARGET"}
	empty, floor, bare := rows[emptyRow].samples.walls(), rows[floorRow].samples.walls(), rows[bareFloorRow].samples.walls()
	for _, row := range rows {
		walls := row.samples.walls()
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%.1f\t%d\t%d\t%.2f\t%s\t%.2f\t%.2f\t%s", row.name,
			ms(percentile(walls, 50)), ms(percentile(walls, 90)), ms(percentile(walls, 99)),
			ms(percentile(row.samples.cpus(), 50)), row.memory, row.traced.programs, row.requests,
			ratio(walls, floor), fifths(walls, floor), ratio(walls, bare), ratio(walls, empty), row.target))
	}
	if err := errors.Join(b.Print(lines...), b.printWhere(rows)); err != nil {
		return err
	}
	return b.printBinaries()
}

// printWhere shows what the time goes to. The kernel splits a process's time between user
// and system by samples: the mean of many runs is right, no single one.
func (b *bench) printWhere(rows []*verb) error {
	lines := []string{"WHERE\tp50 ms\tUSER ms\tSYSTEM ms\tPAGE FAULTS\tSWITCHES\tCALLS OF THE KERNEL\tTHREADS"}
	for _, row := range rows {
		var sum sample
		for _, s := range row.samples {
			sum = sum.plus(s)
		}
		n := len(row.samples)
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d", row.name, ms(percentile(row.samples.walls(), 50)),
			ms(sum.user/time.Duration(n)), ms(sum.system/time.Duration(n)), sum.faults/n, sum.switches/n, row.traced.calls, row.traced.threads))
	}
	return b.Print(lines...)
}

// printInstead compares all rows with the first.
func (b *bench) printInstead(rows []*verb) error {
	lines := []string{"INSTEAD OF\tp50 ms\tp90 ms\tp99 ms\tCPU ms\tPEAK MiB\tPROGRAMS\tREQUESTS\tx FIRST\tCPU x FIRST"}
	first := rows[0].samples
	for _, row := range rows {
		walls := row.samples.walls()
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%.1f\t%d\t%d\t%.2f\t%.2f", row.name,
			ms(percentile(walls, 50)), ms(percentile(walls, 90)), ms(percentile(walls, 99)), ms(percentile(row.samples.cpus(), 50)),
			row.memory, row.traced.programs, row.requests, ratio(walls, first.walls()), ratio(row.samples.cpus(), first.cpus())))
	}
	return b.Print(lines...)
}

func (b *bench) printBinaries() error {
	lines := []string{"BINARY\tMiB\tTARGET"}
	for _, binary := range []struct{ name, target string }{{"empty", ""}, {"floor", ""}, {"capture-cni", "8 MiB"}, {"capture-cni-lookup", ""}} {
		info, err := os.Stat(b.program(binary.name))
		if err != nil {
			return fmt.Errorf("reading the size of a binary: %w", err)
		}
		lines = append(lines, fmt.Sprintf("%s\t%.1f\t%s", binary.name, float64(info.Size())/(1<<20), binary.target))
	}
	return b.Print(lines...)
}

// printGrowth compares each list's connections with those through the list of
// ten of its kind.
func (b *bench) printGrowth(lists []*list) error {
	lines := []string{"BACKEND\tLIST\tLENGTH\tADD p50 ms\tADD CPU ms\tx NONE\tCONNECT, CAPTURED us\tx 10\tCONNECT, EXCLUDED us\tx 10\tTARGET"}
	var none, ten *list
	for _, l := range lists {
		switch l.n {
		case 0:
			none = l
		case 10:
			ten = l
		}
		captured, excluded := "-\t-", "-\t-"
		if l.n > 0 {
			captured = fmt.Sprintf("%s\t%.2f", us(percentile(l.captured, 50)), ratio(l.captured, ten.captured))
			excluded = fmt.Sprintf("%s\t%.2f", us(percentile(l.excluded, 50)), ratio(l.excluded, ten.excluded))
		} else {
			captured = us(percentile(l.captured, 50)) + "\t-"
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%d\t%s\t%s\t%.2f\t%s\t%s\t%s", l.backend, l.kind, l.n,
			ms(percentile(l.adds.walls(), 50)), ms(percentile(l.adds.cpus(), 50)), ratio(l.adds.walls(), none.adds.walls()), captured, excluded, l.target()))
	}
	return b.Print(lines...)
}

// printParallel shows batches of n pods that were started at the same moment.
func (b *bench) printParallel(n int, batches []*batch) error {
	lines := []string{"AT ONCE\tALL DONE p50 ms\tEACH p50 ms\tEACH p99 ms\tCPU OF EACH ms\tx FIRST\tTARGET"}
	first := batches[0]
	for _, batch := range batches {
		lines = append(lines, fmt.Sprintf("%d x %s\t%s\t%s\t%s\t%s\t%.2f\t%s", n, batch.name,
			ms(percentile(batch.totals, 50)), ms(percentile(batch.each.walls(), 50)), ms(percentile(batch.each.walls(), 99)),
			ms(percentile(batch.each.cpus(), 50)), ratio(batch.totals, first.totals), batch.target))
	}
	return b.Print(lines...)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond)) }
func us(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Microsecond)) }
