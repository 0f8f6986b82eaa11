//! `cargo xtask versus`: Kipp and llama.cpp in turn on the same file, threads and lengths, ratio pair by pair. Figures of
//! two sessions are no comparison, so both run here, A B B A. Goes when `kipp bench compare` can do this.

mod engines;
mod flags;
mod record;
mod statistics;

use anyhow::{Context as _, Result};

use crate::exec;
use crate::steps::Context;
use engines::{Engines, KippRun, LlamaRun};
use flags::{Case, Flags};
use statistics::Summary;

pub(crate) use flags::USAGE;

/// A MAD of the ratios above this part of their median shows a machine too restless for a comparison.
const WIDE: f64 = 0.03;

/// One pair of runs.
struct Pair {
    kipp: KippRun,
    llama: LlamaRun,
}

impl Pair {
    fn ratio(&self) -> f64 {
        self.kipp.tok_s / self.llama.tok_s
    }
}

/// Runs all cases, and prints each pair as it falls and a table of them all.
pub(crate) fn run(args: &[&str], context: &Context) -> Result<()> {
    let flags = Flags::parse(args)?;
    let kipp = match &flags.kipp {
        Some(path) => path.clone(),
        None => {
            let build = ["build", "--release", "--quiet", "--package", "kipp-cli"];
            exec::succeed(exec::cargo(&build, &context.root))?;
            context.kipp()
        }
    };
    let engines = Engines::new(kipp, &flags, &context.root);
    let mut table = vec![TABLE_HEADER.to_owned()];
    let mut record = record::Record::default();
    for case in flags.cases() {
        let commands = engines.commands(case);
        println!("{}", commands.join("\n"));
        println!("{PAIR_HEADER}");
        let mut pairs = Vec::new();
        for index in 1..=flags.pairs {
            let pair = pair(&engines, case, index % 2 == 1).with_context(|| case.to_string())?;
            println!("{}", pair_line(case, index, &pair));
            pairs.push(pair);
        }
        record.add(case, &commands, &pairs)?;
        // After each case: a later one that fails takes nothing with it.
        if let Some(path) = &flags.record {
            record.write(path, &context.root)?;
        }
        let line = summary_line(case, &pairs).context("no pairs")?;
        println!("{TABLE_HEADER}\n{line}\n");
        table.push(line);
    }
    println!("{}", table.join("\n"));
    Ok(())
}

fn pair(engines: &Engines, case: Case, kipp_first: bool) -> Result<Pair> {
    if kipp_first {
        let kipp = engines.kipp(case)?;
        return Ok(Pair { kipp, llama: engines.llama(case)? });
    }
    let llama = engines.llama(case)?;
    Ok(Pair { kipp: engines.kipp(case)?, llama })
}

const PAIR_HEADER: &str = "case                 pair      Kipp  llama.cpp   ratio   share   read GB/s 1 thread   all   \
                           peaks GOP/s, all threads";

fn pair_line(case: Case, index: usize, pair: &Pair) -> String {
    let Pair { kipp, llama } = pair;
    format!(
        "{:<20} {index:>4} {:>9.2} {:>10.2} {:>7.3} {:>5.0} % {:>20.1} {:>5.1}   {}",
        case.to_string(),
        kipp.tok_s,
        llama.tok_s,
        pair.ratio(),
        kipp.share * 100.0,
        kipp.read_one_thread_gb_s,
        kipp.read_gb_s,
        kipp.peaks
    )
}

const TABLE_HEADER: &str =
    "case                 median ratio    MAD         Kipp  llama.cpp   share of the limit";

fn summary_line(case: Case, pairs: &[Pair]) -> Option<String> {
    let of = |value: fn(&Pair) -> f64| Summary::of(&pairs.iter().map(value).collect::<Vec<f64>>());
    let ratio = of(Pair::ratio)?;
    let wide = if ratio.mad > WIDE * ratio.median { "   wide: the machine is restless" } else { "" };
    Some(format!(
        "{:<20} {:>12.3} {:>6.3} {:>12.2} {:>10.2} {:>18.0} %{wide}",
        case.to_string(),
        ratio.median,
        ratio.mad,
        of(|pair| pair.kipp.tok_s)?.median,
        of(|pair| pair.llama.tok_s)?.median,
        of(|pair| pair.kipp.share)?.median * 100.0,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn pair_of(kipp: f64, llama: f64) -> Pair {
        let kipp = KippRun {
            tok_s: kipp,
            share: 0.5,
            read_gb_s: 40.0,
            read_one_thread_gb_s: 20.0,
            peaks: "u8_dot 900".to_owned(),
            raw: "[]".to_owned(),
        };
        Pair { kipp, llama: LlamaRun { tok_s: llama, raw: format!("{{\"avg_ts\": {llama}}}") } }
    }

    #[test]
    fn the_median_of_the_ratios_counts_not_the_ratio_of_the_medians() -> Result<()> {
        let case = Case::Prefill { tokens: 512 };
        let pairs = [pair_of(10.0, 5.0), pair_of(30.0, 10.0), pair_of(20.0, 2.0)];
        let line = summary_line(case, &pairs).context("pairs")?;
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells[..6], ["pp512", "3.000", "1.000", "20.00", "5.00", "50"]);
        assert!(line.contains("wide"));
        assert!(summary_line(case, &[]).is_none());
        Ok(())
    }
}
