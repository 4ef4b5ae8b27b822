// RUN: stepc-opt --pass-pipeline="builtin.module(step.optimizer(step-drop-unread-contributions))" %s | FileCheck %s

// What goes to a statistic that nothing reads goes, and what only that needed; the rest stays.

// CHECK-LABEL: step.rule @opt_any_0
// CHECK-NEXT: %[[GG:.*]] = step.mul %{{.*}}, %{{.*}} : [*]
// CHECK-NEXT: %[[S:.*]] = step.sum %[[GG]]
// CHECK-NEXT: step.contribute %read, %[[S]]
// CHECK-NEXT: step.return
step.optimizer @opt {
  %read = step.statistic "read" sum over model
  %unread = step.statistic "unread" amax over model
  %rate = step.scalars over model {
    %norm = step.sqrt %read : f64
    step.yield %norm : f64
  }
  step.rule @opt_any_0(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    %gg = step.mul %g, %g : [*]
    %s = step.sum %gg : [*]
    step.contribute %read, %s
    %a = step.abs %gg : [*]
    %most = step.amax %a : [*]
    step.contribute %unread, %most
    step.return %p
  }
}
