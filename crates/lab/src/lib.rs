//! Experiments, workloads, testbeds, samples, statistics and reports.
