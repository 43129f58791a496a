//! One level of load in numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::goodput::Good;
use super::level::{Level, Offered};
use super::peaks;
use super::spread::Spread;
use super::standing::Standing;
use crate::load::ClientHealth;
use crate::load::RequestRecord;
use crate::rig::{CacheUse, Telemetry};
use crate::units::{Rate, Seconds, TokenRate};
use crate::verdict::{Verdict, Window};

/// The numbers of a level. Counts and latencies are of the requests due within the window. Rates are of the whole answers that ended within
/// it, those to the ramp's requests included. So the beginning brings in what the end cuts off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// What was asked of the load generator.
    pub offered: Offered,
    /// The part whose arrivals count; shorter than planned where the level was cut short. Seconds from the start of the traffic.
    pub window: Window,
    /// Whether the level was interrupted.
    pub partial: bool,
    pub standing: Standing,
    /// Why, where there is a reason.
    pub because: Option<String>,
    /// Requests due within the window.
    pub counted: u64,
    /// Requests with a whole answer.
    pub completed: u64,
    /// Requests without a whole answer.
    pub failed: u64,
    /// Those without, by class; `cut` are those that we gave up as the level ended.
    pub errors: BTreeMap<String, u64>,
    /// Requests due within the window per second; `None` if it has no length.
    pub offered_rate: Option<Rate>,
    /// Whole answers that ended within the window per second.
    pub achieved_rate: Option<Rate>,
    /// Those of them that kept every limit of a single request; none without limits.
    pub goodput: Option<Rate>,
    /// The limits that goodput asks for, in words.
    pub goodput_limits: Option<String>,
    /// Prompt tokens of the completed requests; `None` if one of them is not known.
    pub input_tokens: Option<u64>,
    /// Answer tokens of the completed requests; `None` if one of them is not known.
    pub output_tokens: Option<u64>,
    /// Prompt tokens of the answers that ended within the window, per second. Tokens are known only of a whole answer and count there as a
    /// whole. So an answer across an edge of the window counts in full or not at all.
    pub input_throughput: Option<TokenRate>,
    /// Answer tokens of the same answers, per second.
    pub output_throughput: Option<TokenRate>,
    /// Most answer tokens within one second of the window.
    pub peak_output_throughput: Option<TokenRate>,
    /// Most requests in flight at one moment of the window.
    pub peak_concurrency: u64,
    /// Time to first token of whole answers, from the intended send.
    pub ttft: Option<Spread>,
    /// Time per output token of whole answers of more than one token.
    pub tpot: Option<Spread>,
    /// Gaps between reads that brought tokens, over all whole answers. Tokens that came in one read have no gap between them.
    pub itl: Option<Spread>,
    /// End to end: from the intended send to the last token of whole answers.
    pub e2e: Option<Spread>,
    /// Actual minus intended send of whole answers; part of `ttft` and `e2e`.
    pub send_lag: Option<Spread>,
    pub verdict: Option<Verdict>,
    pub client: ClientHealth,
    /// What the server's counters showed.
    pub telemetry: Telemetry,
    /// What the prefix cache did.
    pub cache: CacheUse,
    /// What a reader must know, in sentences: the level's own warnings, then those that its numbers ask for.
    pub warnings: Vec<String>,
}

/// One request in so many lies above a p99.
const ENOUGH: u64 = 100;

impl Summary {
    pub fn of(level: &Level) -> Self {
        let window = level.filled_window();
        let counted: Vec<&RequestRecord> = level.records.iter().filter(|r| window.holds(r.due)).collect();
        let whole: Vec<&RequestRecord> = counted.iter().copied().filter(|r| r.complete()).collect();
        let ended: Vec<&RequestRecord> = level.records.iter().filter(|r| ended_within(r, window)).collect();
        let per_second = |amount: f64| (window.length().0 > 0.0).then(|| amount / window.length().0);
        let throughput = |tokens: Option<u64>| tokens.and_then(|n| per_second(n as f64)).map(TokenRate);
        let spread = |latency: fn(&RequestRecord) -> Option<Seconds>| {
            Spread::of(whole.iter().filter_map(|r| latency(r)).map(|latency| latency.0))
        };
        let good = Good::of(&level.limits);
        let mut errors = BTreeMap::new();
        for class in counted.iter().filter_map(|r| r.error) {
            *errors.entry(class.name().to_owned()).or_insert(0) += 1;
        }
        let (standing, because) = Standing::of(level, window, counted.len() as u64, &errors);
        let mut summary = Self {
            offered: level.offered,
            window,
            partial: level.partial,
            standing,
            because,
            counted: counted.len() as u64,
            completed: whole.len() as u64,
            failed: (counted.len() - whole.len()) as u64,
            errors,
            offered_rate: per_second(counted.len() as f64).map(Rate),
            achieved_rate: per_second(ended.len() as f64).map(Rate),
            goodput: good
                .as_ref()
                .and_then(|good| per_second(ended.iter().filter(|r| good.holds(r)).count() as f64))
                .map(Rate),
            goodput_limits: good.map(|good| good.sentence()),
            input_tokens: total(&whole, |r| r.tokens_in),
            output_tokens: total(&whole, |r| r.tokens_out),
            input_throughput: throughput(total(&ended, |r| r.tokens_in)),
            output_throughput: throughput(total(&ended, |r| r.tokens_out)),
            peak_output_throughput: peaks::tokens(&level.records, window),
            peak_concurrency: peaks::in_flight(&level.records, window, level.ended),
            ttft: spread(RequestRecord::ttft),
            tpot: spread(RequestRecord::tpot),
            itl: Spread::of(whole.iter().flat_map(|r| &r.gaps).map(|gap| f64::from(*gap))),
            e2e: spread(RequestRecord::e2e),
            send_lag: spread(|r| Some(r.sent - r.due)),
            verdict: level.verdict.clone(),
            client: level.client,
            telemetry: level.telemetry.clone(),
            cache: level.cache,
            warnings: level.warnings.clone(),
        };
        summary.warnings.extend(level.cache.warning(&level.records));
        summary.warnings.extend(summary.survivors());
        summary.warnings.extend(summary.too_few());
        summary
    }

    /// A quantile is worth its digits where some requests lie beyond it. The words are the same for every level, so that a ladder says them once.
    fn too_few(&self) -> Option<String> {
        let few = self.completed > 0 && self.completed < ENOUGH && !self.partial;
        few.then(|| {
            format!("a p99 of fewer than {ENOUGH} requests is their largest latency: send more to trust its digits")
        })
    }

    /// Latencies of those that were answered say nothing of those that were not; a reader must not take them for all.
    fn survivors(&self) -> Option<String> {
        let (failed, counted) = (self.failed, self.counted);
        (failed > 0 && self.completed > 0).then(|| {
            format!("{failed} of {counted} requests have no whole answer: the latencies are those of the others alone")
        })
    }
}

/// Both edges count: of requests sent all at once, the last answer is the end of the window.
fn ended_within(record: &RequestRecord, window: Window) -> bool {
    record.complete() && record.last.is_some_and(|last| last >= window.from && last <= window.to)
}

/// The sum over records; `None` if one of them does not tell, since a part would pass for the whole.
fn total(records: &[&RequestRecord], tokens: fn(&RequestRecord) -> Option<u32>) -> Option<u64> {
    records.iter().map(|r| tokens(r).map(u64::from)).sum()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{WINDOW, answer, at_rate, failed, level};
    use super::*;
    use crate::load::ErrorClass;

    #[test]
    fn a_steady_level_achieves_what_it_is_offered() {
        let summary = Summary::of(&at_rate(10.0, 0.5, "ttft_p99=2s"));
        assert_eq!((summary.counted, summary.completed, summary.failed), (100, 100, 0));
        // Answers to the ramp's last requests end in the window, as many as those that end behind it.
        assert_eq!((summary.offered_rate, summary.achieved_rate), (Some(Rate(10.0)), Some(Rate(10.0))));
        assert_eq!((summary.goodput, summary.output_throughput), (Some(Rate(10.0)), Some(TokenRate(200.0))));
        assert_eq!((summary.input_tokens, summary.output_tokens), (Some(20_000), Some(2_000)));
        assert_eq!(summary.peak_concurrency, 9);
        let itl = summary.itl.unwrap();
        assert_eq!(itl.observations, 1_900);
        assert!((itl.p99.0 - 0.01).abs() < 1e-6 && (summary.tpot.unwrap().median.0 - 0.01).abs() < 1e-6);
        let ttft = summary.ttft.unwrap();
        assert!((ttft.mean.0 - 0.6).abs() < 1e-9 && (ttft.p99.0 - 0.7).abs() < 1e-9);
        assert_eq!(summary.warnings, Vec::<String>::new());
    }

    #[test]
    fn the_drains_latencies_count_and_its_answers_are_no_throughput() {
        let slow = answer(0, 11.5, 3.0, 20, 0.01);
        let ramp = answer(1, 1.0, 0.5, 20, 0.01);
        let summary = Summary::of(&level(Offered::Recorded, vec![ramp, slow], ""));
        assert_eq!((summary.counted, summary.completed), (1, 1));
        assert_eq!(summary.ttft.map(|s| s.p99), Some(Seconds(3.0)));
        assert_eq!((summary.achieved_rate, summary.output_throughput), (Some(Rate(0.0)), Some(TokenRate(0.0))));
        assert_eq!(summary.goodput, None);
    }

    #[test]
    fn where_all_fail_nothing_looks_fast() {
        let records = (0..20).map(|i| failed(i, 2.0 + f64::from(i) / 2.0, ErrorClass::Connection)).collect();
        let summary = Summary::of(&level(Offered::Users(4), records, "ttft_p99=1s"));
        assert_eq!((summary.counted, summary.completed, summary.errors["connection"]), (20, 0, 20));
        assert_eq!([summary.ttft, summary.tpot, summary.itl, summary.e2e, summary.send_lag], [None; 5]);
        assert_eq!((summary.achieved_rate, summary.goodput), (Some(Rate(0.0)), Some(Rate(0.0))));
        assert_eq!((summary.standing, summary.peak_output_throughput), (Standing::Fail, None));
    }

    #[test]
    fn tokens_that_one_answer_does_not_tell_are_unknown() {
        let untold = RequestRecord { tokens_in: None, ..answer(0, 3.0, 0.1, 20, 0.01) };
        let summary = Summary::of(&level(Offered::Users(1), vec![untold, answer(1, 4.0, 0.1, 20, 0.01)], ""));
        assert_eq!((summary.input_tokens, summary.input_throughput), (None, None));
        assert_eq!(summary.output_tokens, Some(40));
    }

    #[test]
    fn an_interrupted_level_divides_by_the_time_that_it_had() {
        let whole = at_rate(10.0, 0.5, "");
        let records: Vec<_> = whole.records.iter().filter(|r| r.due.0 < 7.0).cloned().collect();
        let summary =
            Summary::of(&Level { partial: true, ended: Seconds(7.0), records: records.clone(), ..whole.clone() });
        assert_eq!((summary.window.to, summary.offered_rate), (Seconds(7.0), Some(Rate(10.0))));
        // Interrupted in the ramp: nothing counts, and no rate is made of it.
        let ramp = Summary::of(&Level { partial: true, ended: Seconds(1.5), records: vec![], ..whole.clone() });
        assert_eq!((ramp.counted, ramp.offered_rate, ramp.output_throughput, ramp.ttft), (0, None, None, None));
        // Without an interruption, a level whose last answer came early is not shorter for it.
        let quiet = Summary::of(&Level { ended: Seconds(7.0), records, ..whole });
        assert_eq!((quiet.window, quiet.offered_rate), (WINDOW, Some(Rate(5.0))));
    }

    #[test]
    fn survivors_do_not_speak_for_the_others() {
        let mut records = at_rate(10.0, 0.5, "").records;
        records[50] = failed(50, 5.0, ErrorClass::Truncated);
        let summary = Summary::of(&level(Offered::Rate(Rate(10.0)), records, ""));
        let warning = "1 of 100 requests have no whole answer: the latencies are those of the others alone";
        assert_eq!(summary.warnings[0], warning);
    }
}
