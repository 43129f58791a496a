//! The search on engines whose limits are known, with a twin that is right, wrong or absent.

use super::super::tests::known::{Known, observation, point};
use super::*;
use crate::quickstart::quickstart;

/// The limit of each point in requests per second.
fn limit(seqs: f64) -> f64 {
    20.0 - 3.0 * (seqs / 16.0).ln().abs()
}

fn bayes() -> Bayes {
    let mut bayes = Bayes::new(&quickstart(&[]), 1, &point(64), Rate(12.0));
    bayes.space = super::super::tests::known::space();
    bayes.precision = 0.03;
    bayes
}

/// Follows the strategy over the engine; returns the points launched besides the baseline, and all probes.
fn follow(bayes: &mut Bayes, twin: &mut Known, engine: impl Fn(f64, f64) -> Option<f64>) -> (Vec<Point>, usize) {
    let (mut launched, mut probes) = (Vec::new(), 0);
    let (mut running, mut probed) = (point(64), Vec::new());
    twin.running = Some(running.clone());
    for phase in 0..2 {
        while let Some(query) = bayes.ask(twin, &[]) {
            assert_eq!(bayes.ask(twin, &[]), Some(query.clone()), "asking twice asks the same");
            if query.point != running {
                (running, probed) = (query.point.clone(), Vec::new());
                launched.push(running.clone());
                twin.running = Some(running.clone());
            }
            let seqs = query.point.get("max-num-seqs").and_then(autotune_plan::space::Value::number).unwrap();
            let seen = observation(engine(seqs, query.rate.0), 0.02);
            probed.push(ProbedRate { rate: query.rate, seen });
            bayes.tell(&query, &Tell::Probed(probed.clone()));
            probes += 1;
            assert!(probes < 60, "never ends");
        }
        if phase == 0 {
            assert!(launched.is_empty(), "only the baseline before the space is open");
            bayes.open(&Point::default());
        }
    }
    (launched, probes)
}

/// The margin of an engine with that limit; none far beyond it, where the probe is cut.
fn engine(seqs: f64, rate: f64) -> Option<f64> {
    let margin = 2.0 * (rate / limit(seqs)).ln();
    (margin < 0.5).then_some(margin)
}

#[test]
fn a_twin_that_is_right_or_off_by_a_tenth_everywhere_needs_one_launch() {
    let right = Known::twin(|seqs, rate| 2.0 * (rate / limit(seqs)).ln());
    let off = Known::twin(|seqs, rate| 2.0 * (rate / limit(seqs)).ln() - 0.2);
    for (mut twin, within) in [(right, 0.02), (off, 0.03)] {
        let mut bayes = bayes();
        let (launched, probes) = follow(&mut bayes, &mut twin, engine);
        assert_eq!(launched, [point(16)]);
        assert!(probes <= 6, "{probes}");
        let best = bayes.incumbent().unwrap();
        assert!((best.rate.0 / 20.0 - 1.0).abs() < within, "{}", best.rate);
        assert!((bayes.estimate(&point(64)).unwrap().0 / limit(64.0) - 1.0).abs() < within);
    }
}

#[test]
fn a_twin_that_ranks_wrongly_is_corrected_by_looking() {
    let mut bayes = bayes();
    // It prefers 4 sequences, which are 12 % below the best in truth.
    let mut twin = Known::twin(|seqs, rate| 2.0 * (rate / (limit(seqs) - 0.03 * (seqs - 4.0).min(60.0) + 1.0)).ln());
    follow(&mut bayes, &mut twin, engine);
    assert_eq!(bayes.incumbent().unwrap().point, point(16));
}

#[test]
fn a_point_that_serves_as_one_that_was_probed_is_not_launched() {
    let launched = |roomy: f64| {
        let mut bayes = bayes();
        // It promises more of 16 and 32 sequences, and knows that these serve every request as 64 do.
        let mut twin =
            Known::twin(|seqs, rate| 2.0 * (rate / (limit(seqs) - 6.0 * (seqs / 16.0).ln().min(0.0).abs())).ln());
        twin.roomy = roomy;
        follow(&mut bayes, &mut twin, |_, rate| Some(2.0 * (rate / limit(64.0)).ln()).filter(|margin| *margin < 0.5)).0
    };
    assert!(launched(f64::INFINITY).iter().any(|p| [point(16), point(32)].contains(p)));
    assert!(!launched(16.0).iter().any(|p| [point(16), point(32)].contains(p)), "{:?}", launched(16.0));
}

#[test]
fn a_point_whose_first_probe_was_cut_is_probed_again_a_step_lower() {
    let mut bayes = bayes();
    // Of 16 sequences it expects 8 % more than they keep, and little of the others. Every probe above a limit is cut.
    let mut twin = Known::twin(|seqs, rate| 2.0 * (rate / if seqs == 16.0 { 15.1 } else { 12.0 }).ln());
    let limit = |seqs: f64| if seqs == 16.0 { 14.0 } else { 12.0 };
    follow(&mut bayes, &mut twin, |seqs, rate| Some(2.0 * (rate / limit(seqs)).ln()).filter(|margin| *margin < 0.0));
    let best = bayes.incumbent().unwrap();
    assert!(best.point == point(16) && (13.0..14.6).contains(&best.rate.0), "{best:?}");
}

#[test]
fn a_point_that_costs_more_than_others_is_probed_only_where_it_gains_as_much_more() {
    // 16 sequences keep 2 % more than 64, the others less.
    fn margin(seqs: f64, rate: f64) -> f64 {
        let limit = if seqs == 64.0 { 12.0 } else { 11.0 };
        2.0 * (rate / if seqs == 16.0 { 12.24 } else { limit }).ln()
    }
    let launched = |times: f64| {
        let (mut bayes, mut twin) = (bayes(), Known::twin(margin));
        twin.surcharge = Some((point(16), times));
        let engine = |seqs, rate| Some(margin(seqs, rate)).filter(|margin| *margin < 0.5);
        follow(&mut bayes, &mut twin, engine).0.contains(&point(16))
    };
    assert!(launched(1.0) && !launched(5.0));
}

#[test]
fn without_a_twin_it_finds_the_best_with_more_launches() {
    let mut bayes = bayes();
    let (launched, probes) = follow(&mut bayes, &mut Known::nothing(), engine);
    let best = bayes.incumbent().unwrap();
    assert!(limit(16.0) * 0.97 <= best.rate.0 && best.rate.0 <= 20.6, "{best:?} after {launched:?}, {probes} probes");
}

#[test]
fn points_in_a_row_without_a_gain_end_it() {
    let mut bayes = bayes();
    let same = |_, rate: f64| Some(2.0 * (rate / 12.0).ln()).filter(|margin| *margin < 0.5);
    assert_eq!(follow(&mut bayes, &mut Known::nothing(), same).0.len(), WITHOUT_GAIN);
}

#[test]
fn a_twin_that_decides_few_probes_is_as_good_as_none() {
    let told = |decided: &[bool]| {
        let mut bayes = bayes();
        let probe = |by_twin: &bool| ProbedRate {
            rate: Rate(12.0),
            seen: Observation { by_twin: Some(*by_twin), ..observation(Some(-0.3), 0.02) },
        };
        bayes.tell(&Query::new(point(64), Rate(12.0)), &Tell::Probed(decided.iter().map(probe).collect()));
        // This twin expects the limit at 16.2. Without it, it is thought to be at 13.9.
        let Some(next) = bayes.ask(&mut Known::twin(|_, rate| (rate / 16.2).ln()), &[]) else {
            panic!("nothing is asked")
        };
        next.rate.0 > 15.0
    };
    assert!(told(&[true]) && !told(&[false]));
    assert!(told(&[false, true]) && !told(&[true, false, false]));
}

#[test]
fn an_engine_that_keeps_nothing_is_left_after_few_probes() {
    let mut bayes = bayes();
    let mut twin = Known::twin(|_, rate| 0.4 + 0.05 * rate);
    let (launched, probes) = follow(&mut bayes, &mut twin, |_, rate| Some(0.4 + 0.05 * rate));
    assert!(bayes.incumbent().is_none() && launched.len() <= 1 && probes <= 6, "{launched:?} {probes}");
}

#[test]
fn what_cannot_start_is_not_asked_again() {
    let mut bayes = bayes();
    let mut twin = Known::twin(|seqs, rate| 2.0 * (rate / limit(seqs)).ln());
    let first = Query::new(point(64), Rate(12.0));
    bayes.tell(&first, &Tell::Failed(autotune_plan::engine::diagnosis::Consequence::MemoryBound));
    assert_eq!(bayes.ask(&mut twin, &[]), None, "the baseline did not start");
    bayes.open(&Point::default());
    let Some(query) = bayes.ask(&mut twin, &[]) else { panic!("nothing is asked") };
    assert_ne!(query.point, point(64));
}

#[test]
fn a_point_that_would_not_be_certified_is_not_launched() {
    let mut bayes = bayes();
    // 16 sequences keep the most for minutes, and no more than 10 requests a second in a long run.
    let twin = Known::twin(|seqs, rate| 2.0 * (rate / limit(seqs)).ln());
    let mut twin = twin.with_ceiling(|seqs| if seqs == 16.0 { 10.0 } else { 100.0 });
    let (launched, _) = follow(&mut bayes, &mut twin, engine);
    assert!(!launched.is_empty() && !launched.contains(&point(16)), "{launched:?}");
    let best = bayes.incumbent().unwrap().point;
    assert!(best == point(8) || best == point(32), "{best}");
    let (log, error) = bayes.advantage(&best, &point(64)).unwrap();
    assert!(log > error && error >= LEAST_ERROR, "{log} +- {error}");
    assert_eq!(bayes.advantage(&point(16), &point(64)), None, "nothing was seen of it");
}

#[test]
fn second_thoughts_about_the_running_engine_are_heard() {
    let mut bayes = bayes();
    let mut twin = Known::nothing();
    let query = |rate| Query::new(point(64), Rate(rate));
    let probed = |margin| vec![ProbedRate { rate: Rate(12.0), seen: observation(Some(margin), 0.02) }];
    bayes.tell(&query(12.0), &Tell::Probed(probed(-0.3)));
    let Some(before) = bayes.ask(&mut twin, &[]) else { panic!("nothing is asked") };
    bayes.retell(probed(0.3));
    let Some(after) = bayes.ask(&mut twin, &[]) else { panic!("nothing is asked") };
    assert!(before.rate.0 > 12.0 && after.rate.0 < 12.0, "{before:?} {after:?}");
}

/// After the baseline was looked at: what is asked of a first engine, and of a second one beside it.
fn asked_together(twin: &mut Known) -> (Bayes, Query, Option<Query>) {
    let (mut bayes, mut probed) = (bayes(), Vec::new());
    while let Some(query) = bayes.ask(twin, &[]) {
        let seen = observation(engine(64.0, query.rate.0), 0.02);
        probed.push(ProbedRate { rate: query.rate, seen });
        bayes.tell(&query, &Tell::Probed(probed.clone()));
    }
    bayes.open(&Point::default());
    let Some(first) = bayes.ask(twin, &[]) else { panic!("nothing is asked") };
    let second = bayes.ask(twin, std::slice::from_ref(&first));
    (bayes, first, second)
}

#[test]
fn a_second_engine_is_asked_what_is_worth_it_if_the_first_answers_as_expected() {
    let mut twin = Known::twin(|seqs, rate| 2.0 * (rate / limit(seqs)).ln());
    let (mut bayes, first, second) = asked_together(&mut twin);
    assert_eq!((&first.point, second), (&point(16), None), "the twin is right and knows the best point");
    let before = bayes.incumbent();
    assert_eq!(bayes.ask(&mut twin, &[]), Some(first), "what was imagined is forgotten");
    assert_eq!(bayes.incumbent(), before);

    let (_, first, second) = asked_together(&mut Known::nothing());
    let Some(second) = second else { panic!("nobody knows, and nothing is asked") };
    assert!(second.point != first.point && first.point != point(64) && second.point != point(64));
}

#[test]
fn without_a_twin_a_point_is_thought_to_keep_no_more_than_halfway_to_its_cut_probes() {
    let mut bayes = bayes();
    bayes.with_twin = false;
    let mut nothing = Known::nothing();
    // One rate was kept with much room. All that is known of higher ones is that they were cut.
    let probes = [(12.0, Some(-0.95)), (31.0, None), (18.3, None)];
    let probed = |(rate, margin)| ProbedRate { rate: Rate(rate), seen: observation(margin, 0.2) };
    bayes.tell(&Query::new(point(64), Rate(18.3)), &Tell::Probed(probes.map(probed).to_vec()));
    bayes.ask(&mut nothing, &[]);
    let halfway = (12.0_f64 * 18.3).sqrt();
    assert!((bayes.estimate(&point(64)).unwrap().0 - halfway).abs() < 1e-9, "{:?}", bayes.estimate(&point(64)));
    // Of a point that kept nothing yet, the rates that others kept are asked.
    bayes.open(&Point::default());
    bayes.tell(&Query::new(point(16), Rate(60.0)), &Tell::Probed(vec![probed((60.0, None))]));
    bayes.ask(&mut nothing, &[]);
    let root = bayes.estimate_of(&point(16)).unwrap().root.unwrap().rate.0;
    assert!(root <= (12.0_f64 * 60.0).sqrt() + 1e-9, "{root}");
}
