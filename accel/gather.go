package accel

import "time"

// gather waits for those who were in the step before, beside those who waited then, as they
// come back within moments if they go on: for n of them at most, and no longer than it is
// given. If it counted the former alone, a sequence that came late once would stay apart.
func (q *schedule) gather(n int, most time.Duration) {
	n = min(n, q.expected)
	if q.length() >= n {
		return
	}
	if q.timer == nil {
		q.timer = time.NewTimer(0)
	}
	q.timer.Reset(most)
	defer q.timer.Stop()
	for q.length() < n {
		select {
		case <-q.arrived:
		case <-q.timer.C:
			return
		}
	}
}

// expect notes, after a step, who may wait for the next one. If all of its batch had come too
// late for the step before, those of that step may be waiting for them: a caller that lets
// its sequences go on when all have an answer. It looks no further back: who has not come for
// two steps may have ended.
func (q *schedule) expect(batch int) {
	waiting := q.length()
	q.expected = batch + waiting
	if batch <= q.late {
		q.expected = max(q.expected, q.last+q.late)
	}
	q.last, q.late = batch, waiting
}

// patience is how long a step waits for sequences to come: a small part of what a step
// takes, after the end of one that is computed ahead, as nobody has an answer before.
func (e *Engine) patience() time.Duration {
	const part, most = 8, time.Millisecond
	took := e.schedule.took
	wait := min(took/part, most)
	if e.ahead.running {
		wait += max(0, took-time.Since(e.ahead.since))
	}
	return wait
}
