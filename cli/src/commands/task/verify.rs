//! `airlock task verify`.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use airlock_grader::receipt::PublicKey;
use airlock_grader::run::verify::{Verified, VerifyError, verify as verify_run};
use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::output;
use crate::task_args::VerifyArgs;

/// Something does not fit.
const NOT_VERIFIED: u8 = 1;

/// What `--json` says.
#[derive(Serialize)]
struct Answer<'a> {
    verified: bool,
    /// What does not fit.
    error: Option<String>,
    run: Option<&'a Verified>,
}

pub(crate) fn verify(args: &VerifyArgs) -> Result<ExitCode> {
    let key = public_key(args.key.as_deref())?;
    let verified = match verify_run(&args.run, &key) {
        Err(error) if error.is_failure() => {
            return Err(error).with_context(|| format!("verifying {}", args.run.display()));
        }
        verified => verified,
    };
    if args.format.json {
        let error = verified.as_ref().err().map(sentence);
        output::json(&Answer { verified: verified.is_ok(), error, run: verified.as_ref().ok() })?;
    }
    match verified {
        Ok(run) => {
            if !args.format.json {
                output::print(&output::escape(&words(&run)))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            output::error(&anyhow::anyhow!("not verified: {}", sentence(&error)));
            Ok(ExitCode::from(NOT_VERIFIED))
        }
    }
}

/// An error and its causes as one sentence.
pub(crate) fn sentence(error: &VerifyError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text.replace('\n', " ")
}

fn words(run: &Verified) -> String {
    let checked = run.checked;
    let outcome = serde_json::to_value(run.outcome).unwrap_or_default();
    let score = run.score.map_or_else(|| "none".to_owned(), |score| score.to_string());
    let sigma = run.sigma.map(|sigma| format!(", sigma {sigma}")).unwrap_or_default();
    let mut text = format!(
        "verified: {} of task {} ({})\noutcome   {}\nscore     {score}{sigma}\n",
        run.run_id,
        run.task,
        if run.official { "as its author wrote it" } else { "not official" },
        outcome.as_str().unwrap_or_default(),
    );
    // Writing to a String cannot fail.
    if let Some(candidate) = run.candidate {
        let _ = writeln!(text, "candidate {candidate}");
    }
    if run.in_process {
        text += "note      the tests ran within the candidate's own process, which could have lied to them\n";
    }
    for weaker in &run.weaker {
        let _ = writeln!(text, "weaker    {weaker}");
    }
    let _ = writeln!(
        text,
        "checked   {} files ({} bytes), {} sealed trees, {} events, {} phases, {} validations, {} final verdicts\n\
         key       {}",
        checked.files,
        checked.bytes,
        checked.trees,
        checked.events,
        checked.phases,
        checked.validations,
        checked.verdicts,
        run.key,
    );
    text
}

fn public_key(path: Option<&Path>) -> Result<PublicKey> {
    let (path, usual) = match path {
        Some(path) => (path.to_owned(), false),
        None => (usual_public_key()?, true),
    };
    if usual && !path.exists() {
        bail!("there is no public key {}; name the one that the run was made with by --key", path.display());
    }
    let named = || format!("public key {}", path.display());
    let bytes = fs::read(&path).with_context(named)?;
    let Ok(text) = String::from_utf8(bytes) else {
        let public = path.with_extension("pub");
        bail!(
            "public key {}: not a PEM file; if it is the signing key, name its public half, {}",
            path.display(),
            public.display()
        );
    };
    PublicKey::from_pem(&text).with_context(named)
}

/// Where `airlock task run` writes it beside the usual signing key.
fn usual_public_key() -> Result<PathBuf> {
    Ok(super::usual_key()?.with_extension("pub"))
}
