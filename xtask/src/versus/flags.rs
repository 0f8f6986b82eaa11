//! The flags of `cargo xtask versus`, and the cases that they name.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

pub(crate) const USAGE: &str = "cargo xtask versus --llama-bench PATH FILE [--threads N] [--pairs N] [-p N,..] [-n N,..] \
                                [-d N,..] [--parallel N,.. --llama-batched-bench PATH] [--kv SCHEME] [--kernels CLASS] \
                                [--kipp PATH] [--record FILE]";

/// What both engines run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Case {
    Prefill { tokens: usize },
    Decode { tokens: usize, depth: usize, sequences: usize },
}

/// What was asked for.
#[derive(Debug)]
pub(super) struct Flags {
    pub(super) llama_bench: PathBuf,
    pub(super) llama_batched_bench: Option<PathBuf>,
    /// Built first where nobody names one.
    pub(super) kipp: Option<PathBuf>,
    pub(super) file: String,
    pub(super) threads: usize,
    pub(super) pairs: usize,
    pub(super) kv: String,
    /// Where everything that was measured goes.
    pub(super) record: Option<PathBuf>,
    /// Kipp's class; its own choice where absent.
    pub(super) kernels: Option<String>,
    prompts: Vec<usize>,
    decodes: Vec<usize>,
    depths: Vec<usize>,
    sequences: Vec<usize>,
}

impl Flags {
    pub(super) fn parse(args: &[&str]) -> Result<Self> {
        let mut flags = Self {
            llama_bench: PathBuf::new(),
            llama_batched_bench: None,
            kipp: None,
            record: None,
            file: String::new(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            pairs: 5,
            kv: "bf16".to_owned(),
            kernels: None,
            prompts: vec![512],
            decodes: vec![64],
            depths: vec![0],
            sequences: vec![1],
        };
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            if !arg.starts_with('-') {
                flags.file = arg.to_owned();
                continue;
            }
            let value = args.next().with_context(|| format!("{arg} needs a value"))?;
            flags.set(arg, value)?;
        }
        if flags.file.is_empty() || flags.llama_bench.as_os_str().is_empty() {
            bail!("usage: {USAGE}");
        }
        if flags.sequences.iter().any(|count| *count > 1) && flags.llama_batched_bench.is_none() {
            bail!("--parallel needs --llama-batched-bench PATH");
        }
        Ok(flags)
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<()> {
        match flag {
            "--llama-bench" => self.llama_bench = value.into(),
            "--llama-batched-bench" => self.llama_batched_bench = Some(value.into()),
            "--record" => self.record = Some(value.into()),
            "--kipp" => self.kipp = Some(value.into()),
            "--threads" => self.threads = number(flag, value)?,
            "--pairs" => self.pairs = number(flag, value)?,
            "--kv" => self.kv = value.to_owned(),
            "--kernels" => self.kernels = Some(value.to_owned()),
            "-p" => self.prompts = numbers(flag, value)?,
            "-n" => self.decodes = numbers(flag, value)?,
            "-d" => self.depths = numbers(flag, value)?,
            "--parallel" => self.sequences = numbers(flag, value)?,
            _ => bail!("no flag {flag}; usage: {USAGE}"),
        }
        Ok(())
    }

    /// Prompts first; a length of 0 is no case.
    pub(super) fn cases(&self) -> Vec<Case> {
        let lengths = |list: &[usize]| list.iter().copied().filter(|length| *length > 0).collect::<Vec<_>>();
        let mut cases: Vec<Case> =
            lengths(&self.prompts).into_iter().map(|tokens| Case::Prefill { tokens }).collect();
        for &sequences in &self.sequences {
            for &depth in &self.depths {
                let decodes = lengths(&self.decodes).into_iter();
                cases.extend(decodes.map(|tokens| Case::Decode { tokens, depth, sequences }));
            }
        }
        cases
    }
}

fn number(flag: &str, value: &str) -> Result<usize> {
    value.parse().with_context(|| format!("{flag} {value}: no number"))
}

fn numbers(flag: &str, value: &str) -> Result<Vec<usize>> {
    value.split(',').map(|value| number(flag, value)).collect()
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Prefill { tokens } => f.pad(&format!("pp{tokens}")),
            Self::Decode { tokens, depth, sequences } => {
                let together = if sequences > 1 { format!(" x {sequences}") } else { String::new() };
                let after = if depth > 0 { format!(" @ d{depth}") } else { String::new() };
                f.pad(&format!("tg{tokens}{together}{after}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_make_cases() -> Result<()> {
        let args = ["--llama-bench", "b", "m.gguf", "-p", "0,8", "-n", "4", "-d", "0,16", "--threads", "1"];
        let flags = Flags::parse(&args)?;
        let names: Vec<String> = flags.cases().iter().map(Case::to_string).collect();
        assert_eq!(names, ["pp8", "tg4", "tg4 @ d16"]);
        assert_eq!((flags.threads, flags.pairs), (1, 5));
        let both = [&args[..], &["--parallel", "8", "--llama-batched-bench", "bb"]].concat();
        assert_eq!(Flags::parse(&both)?.cases()[2].to_string(), "tg4 x 8 @ d16");
        Ok(())
    }

    #[test]
    fn what_is_missing_is_said() {
        let error =
            |args: &[&str]| Flags::parse(args).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error(&["m.gguf"]).contains("usage"));
        assert!(error(&["--llama-bench"]).contains("needs a value"));
        assert!(error(&["--llama-bench", "b", "m", "--parallel", "8"]).contains("--llama-batched-bench"));
        assert!(error(&["--llama-bench", "b", "m", "-p", "x"]).contains("no number"));
        assert!(error(&["--what", "b"]).contains("no flag"));
    }
}
