// What golang.org/x/time/rate takes: `go run rate.go allow` in nanoseconds a call, `go run rate.go crowd` in seconds, of
// the clock and of the processor.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"
)

func allow() {
	const rounds, calls = 21, 200_000
	limiter := rate.NewLimiter(1e9, 1e9)
	nanos := make([]float64, rounds)
	for round := range nanos {
		began := time.Now()
		for call := 0; call < calls; call++ {
			if !limiter.Allow() {
				panic("refused")
			}
		}
		nanos[round] = float64(time.Since(began).Nanoseconds()) / calls
	}
	sort.Float64s(nanos)
	fmt.Println(nanos[rounds/2])
}

func crowd() {
	const tasks, perSecond = 100_000, 20_000
	limiter := rate.NewLimiter(perSecond, 1)
	began, busy := time.Now(), busySeconds()
	var done sync.WaitGroup
	done.Add(tasks)
	for task := 0; task < tasks; task++ {
		go func() {
			defer done.Done()
			if limiter.Wait(context.Background()) != nil {
				panic("refused")
			}
		}()
	}
	done.Wait()
	fmt.Println(time.Since(began).Seconds(), busySeconds()-busy)
}

func busySeconds() float64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	seconds := func(time syscall.Timeval) float64 { return float64(time.Sec) + float64(time.Usec)/1e6 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "crowd" {
		crowd()
	} else {
		allow()
	}
}
