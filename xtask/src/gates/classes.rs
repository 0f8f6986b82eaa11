//! The kernel classes that must have been verified, by what the system says of the processor. The program detects them
//! by itself: were it to miss one, its gates would pass by not being held.

use std::fs;

use anyhow::{Result, bail};

/// Each class with instructions of its own, and the names that Linux gives to what it needs.
const NEEDS: &[(&str, &str)] = &[
    ("avx2", "avx2 fma f16c"),
    ("avx-vnni", "avx2 fma f16c avx_vnni"),
    ("avx512", "avx512f avx512bw avx512vl avx512dq"),
    ("avx512-vnni", "avx512f avx512bw avx512vl avx512dq avx512_vnni"),
    ("avx512-bf16", "avx512f avx512bw avx512vl avx512dq avx512_vnni avx512_bf16"),
    ("neon", "asimddp"),
    ("neon-i8mm", "asimddp i8mm"),
];

/// An error that names a class which this processor has and the program did not verify. Only Linux tells.
pub(super) fn check(verified: &[String]) -> Result<()> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let missed: Vec<&str> =
        expected(&cpuinfo).filter(|class| !verified.iter().any(|it| it == class)).collect();
    if missed.is_empty() {
        return Ok(());
    }
    bail!("this processor has {}, but the program verified {} only", missed.join(", "), verified.join(", "))
}

/// Classes of the first processor that `/proc/cpuinfo` describes.
fn expected(cpuinfo: &str) -> impl Iterator<Item = &'static str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"));
    let found: Vec<&str> =
        line.and_then(|line| line.split_once(':')).map_or("", |(_, it)| it).split_whitespace().collect();
    let has = move |needs: &str| needs.split(' ').all(|need| found.contains(&need));
    NEEDS.iter().filter(move |(_, needs)| has(needs)).map(|(class, _)| *class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_what_the_system_says() {
        let of = |cpuinfo: &str| expected(cpuinfo).collect::<Vec<_>>();
        assert_eq!(of("processor : 0\nflags\t\t: fpu avx2 fma f16c avx512f\nflags: all"), ["avx2"]);
        assert_eq!(of("Features\t: fp asimd asimddp i8mm\n"), ["neon", "neon-i8mm"]);
        assert_eq!(of("flags: avx2x fma f16c"), [""; 0]);
        assert_eq!(of(""), [""; 0]);
    }
}
