// Package crontab turns a crontab into a configuration of triggerd: one trigger for each job, in the crontab's order.
//
// It reads what crontab(5) of Debian's cron and of cronie describe: comments, settings (`NAME = value`, with cron's quotes), five time
// fields or a name such as @daily, a user column in system crontabs, and `%` for standard input. Where triggerd and cron differ, the
// result keeps what the jobs had from cron (no catch-up, no repeats, the same shell, folder and standard input), or says in a comment
// and a warning what a person has to look at. A job is never dropped or changed silently: a line that cannot be carried over is a
// problem, and with any problem there is no result.
//
// Values of settings that look like secrets appear nowhere: not in the configuration, the warnings or the problems.
package crontab
