//! The two engines: the command of one run each, and what its output says.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::flags::{Case, Flags};
use crate::exec;
use crate::json::Json;

/// llama.cpp's own default for steps, given to both so that it is no choice of one.
const STEP_TOKENS: &str = "512";

/// Both programs and what they share.
pub(super) struct Engines {
    kipp: PathBuf,
    llama_bench: PathBuf,
    llama_batched_bench: Option<PathBuf>,
    file: String,
    threads: String,
    kv: String,
    kernels: Option<String>,
    root: PathBuf,
}

/// One run of Kipp, and what the machine could do beside it.
#[derive(Debug, PartialEq)]
pub(super) struct KippRun {
    pub(super) tok_s: f64,
    /// The part of the limit that binds the case: peak loop or bare read.
    pub(super) share: f64,
    /// After the run, with its threads.
    pub(super) read_gb_s: f64,
    pub(super) read_one_thread_gb_s: f64,
    /// Name and rate of each loop.
    pub(super) peaks: String,
    /// What it printed.
    pub(super) raw: String,
}

/// One run of llama.cpp.
#[derive(Debug, PartialEq)]
pub(super) struct LlamaRun {
    pub(super) tok_s: f64,
    /// The JSON that it printed.
    pub(super) raw: String,
}

/// A program with its arguments.
struct Command {
    program: PathBuf,
    args: Vec<String>,
}

impl Engines {
    pub(super) fn new(kipp: PathBuf, flags: &Flags, root: &Path) -> Self {
        Self {
            kipp,
            llama_bench: flags.llama_bench.clone(),
            llama_batched_bench: flags.llama_batched_bench.clone(),
            file: flags.file.clone(),
            threads: flags.threads.to_string(),
            kv: flags.kv.clone(),
            kernels: flags.kernels.clone(),
            root: root.to_owned(),
        }
    }

    /// Both commands of a case as a person would type them.
    pub(super) fn commands(&self, case: Case) -> Vec<String> {
        let commands = [Ok(self.kipp_command(case)), self.llama_command(case)];
        commands.into_iter().flatten().map(|command| exec::shown(&self.process(&command))).collect()
    }

    /// Runs Kipp once.
    pub(super) fn kipp(&self, case: Case) -> Result<KippRun> {
        kipp_run(&exec::succeed(self.process(&self.kipp_command(case)))?.stdout)
    }

    /// Runs llama.cpp once.
    pub(super) fn llama(&self, case: Case) -> Result<LlamaRun> {
        let output = exec::succeed(self.process(&self.llama_command(case)?))?.stdout;
        match case {
            Case::Decode { sequences: 2.., .. } => llama_batched_run(&output),
            _ => llama_run(&output),
        }
    }

    fn process(&self, command: &Command) -> std::process::Command {
        let args: Vec<&str> = command.args.iter().map(String::as_str).collect();
        exec::command(&command.program, &args, &self.root)
    }

    fn kipp_command(&self, case: Case) -> Command {
        let (prompt, decode, depth, sequences) = match case {
            Case::Prefill { tokens } => (tokens, 0, 0, 1),
            Case::Decode { tokens, depth, sequences } => (0, tokens, depth, sequences),
        };
        let mut args = words("bench run");
        args.push(self.file.clone());
        args.extend(words(&format!(
            "--runs 1 --json -p {prompt} -n {decode} -d {depth} --parallel {sequences} --threads {} --kv {} \
             --step-tokens {STEP_TOKENS}",
            self.threads, self.kv
        )));
        if let Some(class) = &self.kernels {
            args.extend(["--kernels".to_owned(), class.clone()]);
        }
        Command { program: self.kipp.clone(), args }
    }

    fn llama_command(&self, case: Case) -> Result<Command> {
        // Two bytes a value are f16 there and bf16 here; each engine's default.
        let kv = if self.kv == "bf16" { "f16" } else { &self.kv };
        let mut args = words("-m");
        args.push(self.file.clone());
        args.extend(words(&format!("-t {} -ub {STEP_TOKENS} -ctk {kv} -ctv {kv}", self.threads)));
        let program = match case {
            Case::Prefill { tokens } => {
                args.extend(words(&format!("-p {tokens} -n 0 -r 1 -o json")));
                &self.llama_bench
            }
            Case::Decode { tokens, depth, sequences: 1 } => {
                args.extend(words(&format!("-p 0 -n {tokens} -d {depth} -r 1 -o json")));
                &self.llama_bench
            }
            Case::Decode { tokens, depth, sequences } => {
                let positions = sequences * (depth + tokens);
                args.extend(words(&format!(
                    "-c {positions} -npp {depth} -ntg {tokens} -npl {sequences} --output-format jsonl"
                )));
                self.llama_batched_bench.as_ref().context("--llama-batched-bench names no program")?
            }
        };
        Ok(Command { program: program.clone(), args })
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// What `kipp bench run --runs 1 --json` printed for one case.
fn kipp_run(output: &str) -> Result<KippRun> {
    let result = only(Json::parse(output)?)?;
    let run = match result.list("runs")? {
        [run] => run,
        runs => bail!("{} runs, expected 1", runs.len()),
    };
    let mut peaks = Vec::new();
    for peak in run.list("after.peaks")? {
        peaks.push(format!("{} {:.0}", peak.text("name")?, peak.number("gop_s")?));
    }
    Ok(KippRun {
        tok_s: result.number("tok_s")?,
        share: result.number("share")?,
        read_gb_s: run.number("after.read_gb_s")?,
        read_one_thread_gb_s: run.number("after.read_one_thread_gb_s")?,
        peaks: peaks.join(", "),
        raw: output.to_owned(),
    })
}

/// What `llama-bench -o json` printed for one test.
fn llama_run(output: &str) -> Result<LlamaRun> {
    Ok(LlamaRun { tok_s: only(Json::parse(output)?)?.number("avg_ts")?, raw: output.to_owned() })
}

/// What `llama-batched-bench --output-format jsonl` printed for one test: the rate of all sequences together.
fn llama_batched_run(output: &str) -> Result<LlamaRun> {
    let line = output.lines().find(|line| line.starts_with('{')).context("no line of JSON")?;
    // The prompt's rate is no number where there was no prompt, and C prints that as it likes.
    let raw = line.replace("-nan", "null").replace("nan", "null");
    Ok(LlamaRun { tok_s: Json::parse(&raw)?.number("speed_tg")?, raw })
}

fn only(results: Json) -> Result<Json> {
    match results {
        Json::List(mut results) if results.len() == 1 => Ok(results.remove(0)),
        other => bail!("expected a list of one result, found {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engines() -> Result<Engines> {
        let line = "--llama-bench bench --llama-batched-bench batched m.gguf --threads 2 --kernels avx2";
        let args: Vec<&str> = line.split(' ').collect();
        Ok(Engines::new("kipp".into(), &Flags::parse(&args)?, Path::new(".")))
    }

    #[test]
    fn both_get_the_same_lengths_and_threads() -> Result<()> {
        let decode = |sequences| Case::Decode { tokens: 64, depth: 128, sequences };
        assert_eq!(
            engines()?.commands(decode(1)),
            [
                "kipp bench run m.gguf --runs 1 --json -p 0 -n 64 -d 128 --parallel 1 --threads 2 --kv bf16 \
                 --step-tokens 512 --kernels avx2",
                "bench -m m.gguf -t 2 -ub 512 -ctk f16 -ctv f16 -p 0 -n 64 -d 128 -r 1 -o json",
            ]
        );
        assert_eq!(
            engines()?.commands(decode(8))[1],
            "batched -m m.gguf -t 2 -ub 512 -ctk f16 -ctv f16 -c 1536 -npp 128 -ntg 64 -npl 8 --output-format jsonl"
        );
        assert!(engines()?.commands(Case::Prefill { tokens: 512 })[1].contains("-p 512 -n 0"));
        Ok(())
    }

    #[test]
    fn what_both_print_is_read() -> Result<()> {
        let kipp = r#"[{"name":"pp8","tok_s":2.5,"share":0.5,"runs":[{"tok_s":2.5,"after":{"read_gb_s":40.0,
            "read_one_thread_gb_s":20.0,"peaks":[{"name":"u8_dot","one_thread_gop_s":1.0,"gop_s":900.4}]}}]}]"#;
        let expected = KippRun {
            tok_s: 2.5,
            share: 0.5,
            read_gb_s: 40.0,
            read_one_thread_gb_s: 20.0,
            peaks: "u8_dot 900".to_owned(),
            raw: kipp.to_owned(),
        };
        assert_eq!(kipp_run(kipp)?, expected);
        assert_eq!(llama_run(r#"[{"n_prompt": 16, "avg_ts": 5.29, "samples_ts": [ 5.29 ]}]"#)?.tok_s, 5.29);
        let batched = "main: n_kv\n{\"pp\": 0, \"t_pp\": 0.0, \"speed_pp\": -nan, \"speed_tg\": 1.05}\n\n";
        assert_eq!(llama_batched_run(batched)?.tok_s, 1.05);
        assert!(llama_run("[]").is_err() && kipp_run("{}").is_err() && llama_batched_run("").is_err());
        Ok(())
    }
}
