//! Lending: this machine's rig works for the leader of a session on another one.

use super::lead::Place;
use super::stop::Stop;
use super::{Failed, complain, exit, runtime};
use crate::rig::{Greeting, JobMark, Lent, RealRig, SAME_TOKEN, SILENCE, Terms, Workplace};
use crate::settings::Plan;
use crate::token::Token;
use crate::workload::Corpus;

/// Lends the rig until the leader ends it, which is a success, or a signal does: then whoever started it shall start it again.
pub(super) fn serve_leader(
    place: &Place,
    token: Option<Token>,
    job: JobMark,
    (plan, corpus, seed): (Plan, Corpus, u64),
    workplace: Workplace,
    quiet: bool,
) -> Result<u8, Failed> {
    let Place { rank, address } = place;
    let failed = |e: std::io::Error| Failed::usage(format!("error: failed to listen at the port of {address}: {e}"));
    let listener = address.listen().map_err(failed)?;
    let heard_at = listener.local_addr().map_err(failed)?;
    if token.is_none() && !heard_at.ip().is_loopback() {
        return Err(Failed::usage(format!(
            "error: worker {rank} would lend its engine at http://{heard_at} to whoever reaches that port: {SAME_TOKEN}; \
`head -c 32 /dev/urandom | base64 > FILE` makes one"
        )));
    }
    // As the parent of last resort we inherit what a dead guardian leaves, instead of losing sight of it.
    nix::sys::prctl::set_child_subreaper(true).map_err(Failed::own)?;
    let greeting = Greeting { rank: *rank, job };
    let terms = Terms { greeting, space: plan.space.clone(), token, silence: SILENCE };
    let rig = RealRig::new(plan, workplace, seed, corpus);
    let say = move |words: &str| {
        if !quiet {
            complain(words);
        }
    };
    runtime()?.block_on(async {
        let mut stop = Stop::listen().map_err(Failed::own)?;
        let mut lent = Lent::start(listener, rig, terms, say).map_err(Failed::own)?;
        say(&format!("worker {rank} lends its engine at http://{heard_at}"));
        let ended = tokio::select! {
            ended = lent.ended() => ended.map(|()| exit::FOUND),
            () = stop.told() => {
                complain("stopping the engine (interrupt again to kill it)");
                lent.end();
                let ended = tokio::select! {
                    ended = lent.ended() => ended,
                    () = stop.told() => {
                        lent.kill();
                        lent.ended().await
                    }
                };
                ended.map(|()| exit::INTERRUPTED)
            }
        };
        lent.close().await;
        ended.map_err(|e| Failed::own(format!("error: {e}")))
    })
}
