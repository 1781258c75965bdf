package main

import "time"

// In the lab, the standard library is compiled with a clock that can be set.
func init() {
	setClock = func(milliseconds int64) { time.LabNanoseconds = milliseconds * 1e6 }
}
