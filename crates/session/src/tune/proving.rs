//! A point while it is certified: what was driven of it, and what that proves.

use super::certifier::{Certifier, Proof};
use super::cost::Prices;
use crate::journal::{ExpectedQuantile, MeasuredAtRate, PROOF_OF_DEFAULTS, PointResult, Purpose};
use crate::verdict::Verdict;
use autotune_plan::space::Point;
use autotune_records::units::Rate;

/// The least expected gain of another probe of the best point, per second, over what the search asks of a launch and a probe.
const WORTH: f64 = 0.5;
/// Another window of defaults below a better point must be expected to raise their rate by so many times `min_gain`: nobody deploys it, but the
/// gain is told over it.
const WORTH_OF_DEFAULTS: f64 = 2.0;

/// A point that is being certified.
pub struct Proving {
    pub purpose: Purpose,
    pub point: Point,
    /// The limit that the search estimates for it.
    pub estimate: Rate,
    pub certifier: Certifier,
    pub judged: Vec<(Rate, Verdict)>,
    /// How many windows were driven.
    pub windows: u64,
    pub rate: Rate,
    /// Why no more is driven.
    pub ended: Option<String>,
}

impl Proving {
    pub fn new(purpose: Purpose, point: Point, estimate: Rate) -> Self {
        let (certifier, judged, rate) = (Certifier::default(), Vec::new(), estimate);
        Self { purpose, point, estimate, certifier, judged, windows: 0, rate, ended: None }
    }

    /// Whether it is the point that is going to be deployed.
    pub fn is_best(&self) -> bool {
        self.purpose != Purpose::CertifyBaseline
    }

    pub fn what(&self) -> &'static str {
        if self.is_best() { "the certification of the best point" } else { PROOF_OF_DEFAULTS }
    }

    /// By how many times the least gain another probe must be expected to raise its rate.
    pub fn worth(&self, prices: &Prices) -> f64 {
        if self.is_best() { WORTH * prices.certifying_by_candidate() } else { WORTH_OF_DEFAULTS }
    }

    pub fn proved(&self, proof: &Proof, placed: &PointResult) -> PointResult {
        let away = |rate: Rate| (rate.0 / proof.rate.0).ln().abs();
        let nearest = self.judged.iter().min_by(|a, b| away(a.0).total_cmp(&away(b.0)));
        let keys = nearest.into_iter().flat_map(|(_, verdict)| &verdict.limits).map(|limit| limit.key.clone());
        let expected = keys.zip(self.certifier.margins()).map(|(key, margins)| ExpectedQuantile { key, margins });
        PointResult {
            certified_rate: Some(proof.rate),
            confidence: Some(proof.confidence),
            limit: Some(proof.limit),
            limit_error: Some(proof.error),
            binding: self.certifier.breaks_first(proof.limit).zip(nearest).map(|(l, (_, v))| v.limits[l].key.clone()),
            seen: nearest.map(|(rate, verdict)| MeasuredAtRate::of(*rate, verdict)),
            expected: expected.collect(),
            ..placed.clone()
        }
    }
}
