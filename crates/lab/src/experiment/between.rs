//! Plans between two machines.

use super::{Comparison, Plan, PlanError};
use crate::far::Far;
use crate::testbed::{Candidate, HOSTS};

impl Plan {
    /// The plan with the servers on another machine. A plan without a candidate between machines is
    /// measured with all such candidates ([`HOSTS`]) in place of its own.
    ///
    /// # Errors
    ///
    /// If a part of the plan is possible within one machine only.
    pub fn between(mut self, far: Far) -> Result<Plan, PlanError> {
        self.settings.far = Some(far);
        let is_between = |name: &String| HOSTS.iter().any(|host| host.name == name);
        if !self.candidates.iter().any(is_between) {
            let names = || HOSTS.iter().map(|candidate| candidate.name);
            self.candidates = names().map(str::to_owned).collect();
            let [ours, kernel, interfaces] = HOSTS;
            self.comparisons = vec![ratio(ours, kernel), ratio(interfaces, kernel)];
            self.wanted.clear();
        }
        for cell in &self.cells {
            let supports = |candidate: &Candidate| (candidate.supports)(&cell.workload);
            if !HOSTS.iter().any(supports) {
                return Err(PlanError::Between {
                    cell: cell.name(),
                    reason: "this workload is within one machine",
                });
            }
        }
        Ok(self)
    }
}

fn ratio(candidate: &Candidate, baseline: &Candidate) -> Comparison {
    Comparison {
        candidate: candidate.name.into(),
        baseline: baseline.name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::PlanFile;

    fn plan(text: &str) -> Plan {
        let whole = format!("name = \"mine/far\"\ntitle = \"T\"\n{text}");
        PlanFile::parse("far.toml", &whole)
            .unwrap()
            .plan(false, 1, [0, 1])
    }

    fn far() -> Far {
        Far {
            host: "there".into(),
            ssh: "ssh".into(),
            toehold: "toehold".into(),
            address: None,
        }
    }

    #[test]
    fn plan_within_machine_gets_candidates_between_two() {
        let within = plan(
            "candidates = [\"adaptive\", \"unix\"]\ncompare = [\"adaptive/unix\"]\n\
             [[workload]]\nkind = \"stream\"\nsize = \"64K\"\n",
        );
        let between = within.clone().between(far()).unwrap();
        assert_eq!(
            between.candidates,
            ["toehold-hosts", "kernel-hosts", "ethos-hosts"]
        );
        let ratios = [ratio(&HOSTS[0], &HOSTS[1]), ratio(&HOSTS[2], &HOSTS[1])];
        assert_eq!(between.comparisons, ratios);
        assert_eq!(
            (&between.cells, between.settings.far),
            (&within.cells, Some(far()))
        );
    }

    #[test]
    fn candidates_between_machines_stay_beside_those_within_one() {
        let both = plan(
            "candidates = [\"kernel-loopback\", \"kernel-hosts\"]\n\
             [[workload]]\nkind = \"connect\"\n",
        );
        let between = both.clone().between(far()).unwrap();
        assert_eq!(between.candidates, both.candidates);
    }

    #[test]
    fn single_machine_workload_is_refused_between_two() {
        let refused = |workload: &str| {
            let text = format!("candidates = [\"adaptive\"]\n[[workload]]\n{workload}\n");
            plan(&text).between(far()).unwrap_err().to_string()
        };
        for workload in [
            "kind = \"crowd\"\npairs = 2\nsize = 64",
            "kind = \"web\"\nserver = \"nginx\"\nclients = 2\nsize = \"1K\"",
            "kind = \"acknowledgement\"\ntimes = 3",
        ] {
            assert!(refused(workload).contains("within one machine"), "{workload}");
        }
    }
}
