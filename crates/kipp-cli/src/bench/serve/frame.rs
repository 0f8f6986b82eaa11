//! The frame of a measurement: servers in turn between probes of the machine, the table, the records.

use std::path::Path;

use anyhow::{Context, Result, bail};
use kipp::artifact::{Artifact, sha256_file};
use kipp_kernels::{Activations, KernelClass, select};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::engine::{CaseResult, CaseRun, EngineRun, Judged};
use super::super::limits::Prober;
use super::super::record::{Measurement, Recorder};
use super::super::run::{fingerprint, work_and_prober};
use super::super::schedule::{
    MOST_REPEATS, MeasuredRun, Protocol, between_probes, count_native, mark_foreign,
};
use super::super::single::SingleBackend;
use super::super::work::{Bound, Work};
use super::endpoint::{Endpoint, Manner, Url};
use super::load::Case;
use super::own::Serving;
use super::table::{self, Ratios};
use super::{ServeBenchArgs, bare, measure_cases};
use crate::args::BackendName;
use crate::outcome::{Outcome, UsageError};
use crate::{load, open, report};

/// What answered in one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ServerProcess {
    /// `kipp`, `llamacpp`, or where it is.
    pub(super) server: String,
    /// From its start to its readiness, where it was started for the run.
    pub(super) load_ms: Option<f64>,
    pub(super) peak_resident_bytes: Option<u64>,
    /// Of a server of our own.
    pub(super) backend: Option<SingleBackend>,
}

/// One of those that are measured in turn.
enum Contestant {
    /// Started anew for each run.
    Own,
    /// The engine of the same model, without a server.
    Bare,
    /// Somebody's server, which goes on.
    At(Box<Endpoint>),
}

/// A contestant with its runs.
pub(super) struct Side {
    pub(super) name: String,
    contestant: Contestant,
    pub(super) runs: Vec<MeasuredRun<EngineRun<ServerProcess>>>,
}

/// What the results of one server came to.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SideResult {
    pub(super) server: String,
    /// How many times as fast as the first server, run by run; absent for the first.
    pub(super) ratios: Option<Ratios>,
    pub(super) case: CaseResult<ServerProcess>,
}

/// All runs, their table, and their records where those are wanted.
pub(crate) fn run(args: &ServeBenchArgs) -> Result<Outcome> {
    let cases = args.cases()?;
    let manner = args.manner();
    let is_url = Url::is_meant(&args.target);
    let artifact = artifact(args, is_url)?;
    let mut sides = sides(args, &manner, is_url)?;
    let recorder = match &artifact {
        Some(artifact) => Recorder::new("bench serve", &args.record, artifact)?,
        None => None,
    };
    if let Some(recorder) = &recorder
        && let Some(refused) = recorder.refuses(Some(args.runs))?
    {
        return Ok(refused);
    }
    // The state of the machine is probed with the size of the model; of a model that nobody named, with a small one.
    let probed = match &artifact {
        Some(artifact) => artifact.clone(),
        None => open::artifact(crate::args::EMBEDDED_MODEL)?,
    };
    let (work, prober) = work_and_prober(&probed, &args.context.attention, &args.backend)?;
    measure(
        args,
        &mut sides,
        &manner,
        &Probes { work: &work, prober: &prober, repeats: recorder.is_some() },
    )?;
    let mut results = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        for side in &sides {
            let ratios = table::ratios(&sides, side, at);
            let case = CaseResult::new(at, &side.runs, judged(*case), Bound::Memory, &work)?;
            results.push(SideResult { server: side.name.clone(), ratios, case });
        }
    }
    report::text(&match args.json {
        true => serde_json::to_string(&results).context("the result as JSON")? + "\n",
        false => table::table(&results),
    })?;
    match (recorder, &artifact) {
        (Some(recorder), Some(artifact)) => record(args, artifact, &recorder, &results),
        _ => Ok(Outcome::Done),
    }
}

/// The model whose answers are measured, where it is known.
fn artifact(args: &ServeBenchArgs, is_url: bool) -> Result<Option<Artifact>> {
    let named = match (&args.weights, is_url) {
        (Some(_), false) => {
            return Err(UsageError::new("--weights", "is for a URL; the model is named already").into());
        }
        (weights, true) => weights.as_deref(),
        (None, false) => Some(args.target.as_str()),
    };
    if named.is_none() && args.record.record.is_some() {
        let reason = "a record names its model: --weights FILE, which the server at the URL has loaded";
        return Err(UsageError::new("--record", reason).into());
    }
    if is_url && args.bare {
        return Err(UsageError::new("--bare", "needs a model instead of a URL").into());
    }
    if matches!(args.backend.backend, BackendName::Oracle) {
        return Err(UsageError::new("--backend", "the oracle cannot serve").into());
    }
    let Some(model) = named else { return Ok(None) };
    let artifact = open::artifact(model)?;
    let spec = load::spec(&artifact, &args.context.attention)?;
    if !is_url {
        // What the server would refuse is refused before one is started.
        load::context_limit(&artifact, &spec, &args.context)?;
    }
    load::check_flags(&artifact, &args.backend)?;
    Ok(Some(artifact))
}

/// Who is measured; servers that should be there are asked whether they are.
fn sides(args: &ServeBenchArgs, manner: &Manner, is_url: bool) -> Result<Vec<Side>> {
    let at = |url: &str| -> Result<Contestant> {
        let endpoint = Endpoint::open(Url::parse(url)?, args.served_model.as_deref(), manner)?;
        Ok(Contestant::At(Box::new(endpoint)))
    };
    let mut contestants = vec![if is_url { at(&args.target)? } else { Contestant::Own }];
    if args.bare {
        contestants.push(Contestant::Bare);
    }
    for url in &args.against {
        contestants.push(at(url)?);
    }
    let mut sides: Vec<Side> = Vec::new();
    for contestant in contestants {
        let name = match &contestant {
            Contestant::Own => "kipp".to_owned(),
            Contestant::Bare => "bare".to_owned(),
            Contestant::At(endpoint) => endpoint.owner.clone(),
        };
        let taken = |name: &str| sides.iter().any(|side| side.name == name);
        let name = match &contestant {
            Contestant::At(endpoint) if taken(&name) => format!("{name} {}", endpoint.url.authority),
            _ => name,
        };
        sides.push(Side { name, contestant, runs: Vec::new() });
    }
    Ok(sides)
}

/// What the runs are held against.
struct Probes<'a> {
    work: &'a Work,
    prober: &'a Prober,
    /// Runs in another state of the machine are repeated.
    repeats: bool,
}

/// All runs: forwards and backwards through the servers in turn, so that a drift of the machine meets each alike.
fn measure(args: &ServeBenchArgs, sides: &mut [Side], manner: &Manner, probes: &Probes<'_>) -> Result<()> {
    Protocol::begin(args.protocol(), probes.prober);
    let mut before = probes.prober.probe();
    let most = args.runs + if probes.repeats { MOST_REPEATS } else { 0 };
    for run in 0..most {
        let native = sides.iter().map(|side| count_native(&side.runs)).min();
        if native.is_some_and(|native| native >= args.runs) {
            break;
        }
        let mut order: Vec<&mut Side> = sides.iter_mut().collect();
        if run % 2 == 1 {
            order.reverse();
        }
        for side in order {
            let once = || side.contestant.run(args, manner, run as u64);
            let measured = between_probes(probes.prober, args.protocol(), &mut before, once)?;
            for case in &measured.run.cases {
                report::note(&format!("run {}: {} {}", run + 1, side.name, table::line(case)));
            }
            side.runs.push(measured);
            // Only when all wanted runs are there is it known which state most of them met.
            if side.runs.len() >= args.runs {
                mark_foreign(&mut side.runs, |run| run.beside(Bound::Memory, probes.work));
            }
        }
    }
    Ok(())
}

impl Contestant {
    fn run(&self, args: &ServeBenchArgs, manner: &Manner, run: u64) -> Result<EngineRun<ServerProcess>> {
        match self {
            Contestant::Bare => bare::run_in_process(run),
            Contestant::At(endpoint) => {
                let cases: Vec<CaseRun> = measure_cases(args, &**endpoint, run)?;
                let server = endpoint.owner.clone();
                let process =
                    ServerProcess { server, load_ms: None, peak_resident_bytes: None, backend: None };
                Ok(EngineRun { cases, process })
            }
            Contestant::Own => {
                let mut serving = Serving::start(args, manner)?;
                let cases = measure_cases(args, &serving.endpoint, run)?;
                serving.check()?;
                let process = ServerProcess {
                    server: serving.endpoint.owner.clone(),
                    load_ms: Some(serving.load_ms),
                    peak_resident_bytes: serving.peak_resident_bytes(),
                    backend: Some(own_backend(args, &serving.endpoint)?),
                };
                Ok(EngineRun { cases, process })
            }
        }
    }
}

/// What computes in a server of our own: the choice that its flags make, which never falls back.
fn own_backend(args: &ServeBenchArgs, endpoint: &Endpoint) -> Result<SingleBackend> {
    let artifact = open::artifact(&args.target)?;
    let options = load::cpu_options(&args.backend)?;
    let class = options.class.unwrap_or_else(KernelClass::best);
    let attention = options.attention.unwrap_or(class);
    let Some(kernels) = select(class) else { bail!("{} cannot run here", class.name()) };
    let coarsest = options.activations.unwrap_or(Activations::S8);
    let schemes: std::collections::BTreeSet<_> =
        artifact.weights().matrices().map(|matrix| matrix.scheme).collect();
    let coding = |scheme: &kipp::Scheme| {
        format!("{}:{}", scheme.name(), kernels.coding(*scheme, coarsest).activations().name())
    };
    Ok(SingleBackend {
        name: "cpu".to_owned(),
        kernels: match class == attention {
            true => class.name().to_owned(),
            false => format!("matmul={},attention={}", class.name(), attention.name()),
        },
        activations: schemes.iter().map(coding).collect::<Vec<_>>().join(" "),
        threads: args.backend.threads.unwrap_or_else(kipp::backend::cpu::default_threads),
        demoted: Vec::new(),
        kv: args.context.attention.kv.name().to_owned(),
        kv_blocks: endpoint.metric("kipp_kv_blocks{state=\"total\"}").unwrap_or(0.0) as usize,
        max_rows: args.step.step_tokens,
    })
}

/// A closed load goes as fast as the machine lets it. An open one goes as fast as requests arrive, whatever the machine's
/// state, so that its rate is not divided by a probe.
fn judged(case: Case) -> Judged {
    match case {
        Case::Open { .. } => Judged::Ratio("tok_s"),
        Case::Closed { .. } | Case::Choices { .. } => Judged::Rate("tok_s"),
    }
}

/// One file a case, of the first server; the others stand beside it.
fn record(
    args: &ServeBenchArgs,
    artifact: &Artifact,
    recorder: &Recorder<'_>,
    results: &[SideResult],
) -> Result<Outcome> {
    let of_kipp = |result: &SideResult| {
        let process = result.case.runs.first().map(|run| &run.run.process);
        process.is_some_and(|process| process.server == "kipp")
    };
    let fingerprint = match results.first().is_some_and(of_kipp) {
        true => fingerprint(artifact, &args.context.attention, &args.backend)?,
        // Of somebody else's logits nothing is known.
        false => None,
    };
    let firsts = results.iter().filter(|result| result.ratios.is_none());
    recorder.write_all(firsts.map(|first| {
        let same = |other: &&SideResult| other.ratios.is_some() && other.case.name == first.case.name;
        let beside: Vec<&SideResult> = results.iter().filter(same).collect();
        let process = first.case.runs.first().map(|run| &run.run.process);
        Ok(Measurement {
            name: format!("serve-{}", first.case.name),
            backend: process.and_then(|process| process.backend.clone()),
            settings: settings(args),
            protocol: Protocol::describe(args.protocol()),
            results: json!({"server": first.server, "case": first.case, "beside": beside}),
            dispersion: Some(first.case.dispersion),
            runs: Some((first.case.native_runs(), args.runs)),
            fingerprint: fingerprint.clone(),
        })
    }))
}

/// How another server was started, and with which program.
fn peer(command: &str) -> Value {
    let program = command.split_whitespace().next().map(Path::new);
    let sha256 = program.filter(|path| path.is_file()).and_then(|path| sha256_file(path).ok());
    json!({"command": command, "program_sha256": sha256})
}

/// What a record says beside the results.
fn settings(args: &ServeBenchArgs) -> Value {
    json!({
        "target": args.target,
        "against": args.against,
        "peers": args.peer_command.iter().map(|command| peer(command)).collect::<Vec<_>>(),
        "endpoint": if args.chat { "/v1/chat/completions" } else { "/v1/completions" },
        "prompt_words": args.prompt_words,
        "common_prefix": args.common_prefix,
        "generated_tokens": args.decode,
        "requests_a_client": args.turns,
        "requests_of_an_open_load": args.requests,
        "seed": args.seed,
        "temperature": args.temperature,
        "openai_only": args.openai_only,
        "objective_ttft_ms": args.objective_ttft_ms,
        "objective_itl_ms": args.objective_itl_ms,
        "step_tokens": args.step.step_tokens,
        "itl": "between pieces of text of one choice, as they reach the client",
        "tpot": "from the first piece to the last, divided by the tokens after the first",
        "open": "arrivals are a Poisson stream; times count from the arrival",
        "net_tok_s": "tokens over the span without the client's own processor time",
        "warm_up": "one request, before each run",
        "runs": args.runs,
    })
}
