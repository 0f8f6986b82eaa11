//! How long one call takes: passes of as many calls as the clock needs, the first one not counted, the median of the rest.

use std::time::{Duration, Instant};

use crate::bench::statistics::Summary;

/// A pass is at least this long: much longer than the clock's grain, and short enough for hundreds of cases.
const PASS_TIME: Duration = Duration::from_millis(8);
/// Passes that count.
const PASSES: usize = 5;
/// Calls longer than this are timed once, without a warm-up: plain Rust takes seconds for what the lanes do in ten
/// milliseconds.
const LONG: Duration = Duration::from_millis(250);

/// Seconds of one call of `work`, which is told how often it was called before.
pub(super) fn seconds(mut work: impl FnMut(usize)) -> Summary {
    let mut turn = 0;
    let mut pass = |calls: usize| {
        let started = Instant::now();
        for _ in 0..calls {
            work(turn);
            turn += 1;
        }
        started.elapsed()
    };
    let mut calls = 1;
    loop {
        match pass(calls) {
            time if time >= LONG => return once(time.as_secs_f64() / calls as f64),
            time if time >= PASS_TIME => break,
            _ => calls *= 2,
        }
    }
    let passes: Vec<f64> = (0..PASSES).map(|_| pass(calls).as_secs_f64() / calls as f64).collect();
    Summary::of(&passes).unwrap_or(once(f64::NAN))
}

/// A single value, which has no deviation.
fn once(value: f64) -> Summary {
    Summary { median: value, mad: 0.0, min: value, max: value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_and_timed() {
        let mut seen = 0;
        let time = seconds(|turn| {
            assert_eq!(turn, seen);
            seen += 1;
            std::thread::sleep(Duration::from_millis(3));
        });
        assert!(time.median >= 3e-3 && time.min <= time.max && seen > PASSES, "{time:?} {seen}");
        let mut once = 0;
        let long = seconds(|_| {
            once += 1;
            std::thread::sleep(LONG);
        });
        assert!(long.median >= LONG.as_secs_f64());
        assert_eq!(once, 1);
    }
}
