//! Two replicas of `kipp serve` behind SMG, a gateway that others wrote, as `docs/scale-out.md` shows them. The script
//! starts them and ends them, since that is what it tries.

use anyhow::{Context as _, Result};

use crate::cargo_steps::without_warnings;
use crate::clients::checked;
use crate::install::Python;
use crate::steps::{Context, Report};

pub(crate) fn step(context: &Context) -> Result<Report> {
    without_warnings(context, &["build", "--release", "-p", "kipp-cli"])?;
    let scripts = context.root.join("xtask/clients");
    let python = Python::pinned(context, "clients/gateway", &scripts.join("gateway.txt"))?;
    let kipp = context.kipp();
    let kipp = kipp.to_str().context("the path of the program is not UTF-8")?;
    let script = "replicas.py";
    let mut report = Report::default();
    report.say(checked(script, python.script(&scripts.join(script), &[kipp])?)?);
    Ok(report)
}
