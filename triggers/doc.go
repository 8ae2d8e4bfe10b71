// Package triggers decides: which triggers an event sets off, on which thread, with which input, and why.
//
// A decision is a pure function of the event and the definitions. Nothing that changes with time (a pause, a budget, a turn that
// runs) is part of it, so `explain` can make it again later from the stored event and the stored definitions.
package triggers
