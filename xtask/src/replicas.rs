//! Two replicas of `kipp serve` behind SMG, a gateway that others wrote, as `docs/scale-out.md` shows them. The script
//! starts them and ends them, since that is what it tries.

use anyhow::{Context as _, Result, bail};

use crate::cargo_steps::without_warnings;
use crate::clients::checked;
use crate::exec;
use crate::install::Python;
use crate::steps::{Context, Report};

pub(crate) fn step(context: &Context) -> Result<Report> {
    without_warnings(context, &["build", "--release", "-p", "kipp-cli"])?;
    let scripts = context.root.join("xtask/clients");
    let python = Python::pinned(context, "clients/gateway", &scripts.join("gateway.txt"))?;
    let kipp = context.kipp();
    let kipp = kipp.to_str().context("the path of the program is not UTF-8")?;
    shown_as_tried(context)?;
    let script = "replicas.py";
    let mut report = Report::default();
    report.say(checked(script, python.script(&scripts.join(script), &[kipp])?)?);
    Ok(report)
}

/// The page, which a person follows, and its example.
const PAGE: &str = "docs/scale-out.md";
const EXAMPLE: &str = "examples/scale-out/ray_batches.py";

/// The page names the version that is tried here, and its example can be read by Python. Ray itself is a download of
/// hundreds of MB, so that it was run by hand.
fn shown_as_tried(context: &Context) -> Result<()> {
    let read = |path: &str| {
        std::fs::read_to_string(context.root.join(path)).with_context(|| format!("cannot read {path}"))
    };
    let pins = read("xtask/clients/gateway.txt")?;
    let Some(pin) = pins.lines().find(|line| line.starts_with("smg==")) else { bail!("SMG is not pinned") };
    if !read(PAGE)?.contains(pin) {
        bail!("{PAGE} shows another version than {pin}");
    }
    let parse = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
    exec::succeed(exec::command("python3", &["-c", parse, EXAMPLE], &context.root)).map(drop)
}
