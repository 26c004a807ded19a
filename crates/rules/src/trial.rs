//! One rule tried on a case made by hand.

use ringleader_correlate::Scene;
use ringleader_model::{Finding, RankSet};

use crate::rule::{Outcome, Rule};

pub(crate) use ringleader_correlate::staging::StagedCase;

/// The outcome of a rule on a stage.
pub(crate) trait Trial {
    /// All findings of a rule.
    fn findings(&self, rule: &Rule) -> Vec<Finding>;

    /// The findings of a rule, each as `cause ranks`, must be these; all of them are cited and say what to do.
    #[track_caller]
    fn expect(&self, rule: &Rule, expected: &[&str]);

    /// The rule must find nothing.
    #[track_caller]
    fn silent(&self, rule: &Rule);

    /// The one finding of a rule.
    #[track_caller]
    fn finding(&self, rule: &Rule) -> Finding;

    /// The one finding, as `cause ranks at function:line, confidence`.
    #[track_caller]
    fn concludes(&self, rule: &Rule, expected: &str);

    /// The findings' severities and weights, for tests of how a bond to the job changes them.
    fn worth(&self, rule: &Rule) -> Vec<String>;
}

impl Trial for StagedCase {
    fn findings(&self, rule: &Rule) -> Vec<Finding> {
        let scene = Scene::new(&self.case);
        match (rule.check)(&scene) {
            Outcome::Clear | Outcome::Undecided(_) => Vec::new(),
            Outcome::Found(findings) => findings,
        }
    }

    #[track_caller]
    fn expect(&self, rule: &Rule, expected: &[&str]) {
        let findings = self.findings(rule);
        let got: Vec<String> = findings
            .iter()
            .map(|f| {
                let ranks: ringleader_model::RankSet = f.culprits.iter().filter_map(|c| c.rank).collect();
                format!("{} {ranks}", f.cause).trim_end().to_owned()
            })
            .collect();
        assert_eq!(got, expected, "{findings:#?}");
        for finding in &findings {
            assert_eq!(finding.rule, rule.id);
            assert!(!finding.evidence.is_empty() && !finding.actions.is_empty(), "{finding:#?}");
            assert!(finding.title.chars().count() <= 110, "too long for one line: {}", finding.title);
        }
    }

    #[track_caller]
    fn silent(&self, rule: &Rule) {
        self.expect(rule, &[]);
    }

    #[track_caller]
    fn finding(&self, rule: &Rule) -> Finding {
        let findings = self.findings(rule);
        assert_eq!(findings.len(), 1, "{findings:#?}");
        findings.into_iter().next().unwrap_or_else(|| unreachable!())
    }

    #[track_caller]
    fn concludes(&self, rule: &Rule, expected: &str) {
        let finding = self.finding(rule);
        let ranks: RankSet = finding.culprits.iter().filter_map(|c| c.rank).collect();
        let place = finding.culprits.first().and_then(|c| c.place.as_ref());
        let place = place.map_or_else(String::new, |f| format!(" at {}:{}", f.function, f.line));
        assert_eq!(finding.rule, rule.id);
        assert!(!finding.evidence.is_empty() && !finding.actions.is_empty(), "{finding:#?}");
        let said = format!("{} {ranks}{place}, {}", finding.cause, finding.confidence);
        assert_eq!(said, expected, "{finding:#?}");
    }

    fn worth(&self, rule: &Rule) -> Vec<String> {
        self.findings(rule).iter().map(|f| format!("{} {:?}", f.severity, f.weight)).collect()
    }
}
