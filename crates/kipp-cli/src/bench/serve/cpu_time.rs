//! Processor time that this process has taken. A client on the machine of its server takes what the server then lacks, so
//! figures carry how much that was.

use std::time::Duration;

/// Ticks of Linux's accounts, which are told to programs in hundredths of a second on every architecture that Kipp runs on.
const TICK: Duration = Duration::from_millis(10);

/// Of all its threads, in the system's own code too; `None` where the system does not tell.
pub(super) fn cpu_time() -> Option<Duration> {
    of_stat(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// The 14th and 15th field. The second is the program's name in parentheses, and may hold anything.
fn of_stat(stat: &str) -> Option<Duration> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    Some(TICK * ticks()?.checked_add(ticks()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_added() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 30 12 0 0 20 0 1 0 5 6 7";
        assert_eq!(of_stat(stat), Some(Duration::from_millis(420)));
        assert_eq!(of_stat(""), None);
        let before = cpu_time();
        let started = std::time::Instant::now();
        while started.elapsed() < Duration::from_millis(60) {
            std::hint::black_box(0);
        }
        if let Some((before, after)) = before.zip(cpu_time()) {
            assert!(after >= before && after - before <= started.elapsed() * 64);
        }
    }
}
