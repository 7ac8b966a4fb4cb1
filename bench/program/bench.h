// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_BENCH_H
#define KVERN_BENCH_BENCH_H

// What kvern-bench measures; argv[0] is the title. The result is an exit code (cli/io/report.h).
int bench_attention(int argc, char **argv);
int bench_draft(int argc, char **argv);
int bench_model(int argc, char **argv);
int bench_overhead(int argc, char **argv);
int bench_recurrent(int argc, char **argv);
int bench_select(int argc, char **argv);
int bench_sharing(int argc, char **argv);
int bench_store(int argc, char **argv);

#endif
