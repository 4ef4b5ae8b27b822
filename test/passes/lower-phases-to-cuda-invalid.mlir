// RUN: stepc-opt --step-lower-phases-to-cuda --split-input-file --verify-diagnostics %s

step.optimizer @unscheduled {
  // expected-error @+1 {{'step.rule' op is not scheduled}}
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.return %p
  }
}

// -----

step.optimizer @scalars_left {
  step.program @program(%p: param[*] as f32) variant <"any", {}, f32> {
    // expected-error @+1 {{'step.cohort_scalars' op has no function yet}}
    step.cohort_scalars @scalars {
      step.yield
    }
    step.traverse @phase0 over [*] reads (%x = %p : <[*], f32>) writes (%p : <[*], f32>) {
      step.yield %x : f32
    }
  }
}

// -----

step.optimizer @many {
  step.program @program(%p: param[n, m] as f64) variant <"any", {}, f64> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // 96 are the most.
    %phase0:96 = step.traverse @phase0 over [n, m] reads (%x = %p : <[n, m], f64>)
        partials (
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1]) {
      step.yield
        %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x,
        %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x,
        %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x,
        %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x :
        f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64,
        f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64,
        f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64,
        f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64,
        f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64
    }
    %phase0_0 = step.combine %phase0#0 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_1 = step.combine %phase0#1 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_2 = step.combine %phase0#2 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_3 = step.combine %phase0#3 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_4 = step.combine %phase0#4 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_5 = step.combine %phase0#5 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_6 = step.combine %phase0#6 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_7 = step.combine %phase0#7 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_8 = step.combine %phase0#8 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_9 = step.combine %phase0#9 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_10 = step.combine %phase0#10 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_11 = step.combine %phase0#11 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_12 = step.combine %phase0#12 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_13 = step.combine %phase0#13 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_14 = step.combine %phase0#14 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_15 = step.combine %phase0#15 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_16 = step.combine %phase0#16 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_17 = step.combine %phase0#17 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_18 = step.combine %phase0#18 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_19 = step.combine %phase0#19 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_20 = step.combine %phase0#20 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_21 = step.combine %phase0#21 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_22 = step.combine %phase0#22 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_23 = step.combine %phase0#23 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_24 = step.combine %phase0#24 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_25 = step.combine %phase0#25 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_26 = step.combine %phase0#26 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_27 = step.combine %phase0#27 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_28 = step.combine %phase0#28 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_29 = step.combine %phase0#29 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_30 = step.combine %phase0#30 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_31 = step.combine %phase0#31 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_32 = step.combine %phase0#32 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_33 = step.combine %phase0#33 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_34 = step.combine %phase0#34 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_35 = step.combine %phase0#35 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_36 = step.combine %phase0#36 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_37 = step.combine %phase0#37 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_38 = step.combine %phase0#38 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_39 = step.combine %phase0#39 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_40 = step.combine %phase0#40 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_41 = step.combine %phase0#41 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_42 = step.combine %phase0#42 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_43 = step.combine %phase0#43 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_44 = step.combine %phase0#44 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_45 = step.combine %phase0#45 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_46 = step.combine %phase0#46 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_47 = step.combine %phase0#47 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_48 = step.combine %phase0#48 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_49 = step.combine %phase0#49 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_50 = step.combine %phase0#50 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_51 = step.combine %phase0#51 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_52 = step.combine %phase0#52 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_53 = step.combine %phase0#53 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_54 = step.combine %phase0#54 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_55 = step.combine %phase0#55 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_56 = step.combine %phase0#56 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_57 = step.combine %phase0#57 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_58 = step.combine %phase0#58 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_59 = step.combine %phase0#59 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_60 = step.combine %phase0#60 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_61 = step.combine %phase0#61 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_62 = step.combine %phase0#62 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_63 = step.combine %phase0#63 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_64 = step.combine %phase0#64 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_65 = step.combine %phase0#65 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_66 = step.combine %phase0#66 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_67 = step.combine %phase0#67 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_68 = step.combine %phase0#68 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_69 = step.combine %phase0#69 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_70 = step.combine %phase0#70 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_71 = step.combine %phase0#71 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_72 = step.combine %phase0#72 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_73 = step.combine %phase0#73 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_74 = step.combine %phase0#74 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_75 = step.combine %phase0#75 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_76 = step.combine %phase0#76 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_77 = step.combine %phase0#77 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_78 = step.combine %phase0#78 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_79 = step.combine %phase0#79 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_80 = step.combine %phase0#80 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_81 = step.combine %phase0#81 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_82 = step.combine %phase0#82 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_83 = step.combine %phase0#83 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_84 = step.combine %phase0#84 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_85 = step.combine %phase0#85 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_86 = step.combine %phase0#86 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_87 = step.combine %phase0#87 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_88 = step.combine %phase0#88 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_89 = step.combine %phase0#89 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_90 = step.combine %phase0#90 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_91 = step.combine %phase0#91 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_92 = step.combine %phase0#92 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_93 = step.combine %phase0#93 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_94 = step.combine %phase0#94 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase0_95 = step.combine %phase0#95 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    // expected-error @+1 {{'step.traverse' op has more reductions along rows than a block of cuda has shared memory for}}
    %phase1:97 = step.traverse @phase1 over [n, m] reads (%x = %p : <[n, m], f64>)
        partials (
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
          sum to [n, 1]) {
      step.yield
        %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x,
        %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x,
        %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x,
        %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x :
        f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64,
        f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64,
        f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64,
        f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64,
        f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64
    }
    %phase1_0 = step.combine %phase1#0 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_1 = step.combine %phase1#1 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_2 = step.combine %phase1#2 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_3 = step.combine %phase1#3 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_4 = step.combine %phase1#4 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_5 = step.combine %phase1#5 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_6 = step.combine %phase1#6 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_7 = step.combine %phase1#7 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_8 = step.combine %phase1#8 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_9 = step.combine %phase1#9 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_10 = step.combine %phase1#10 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_11 = step.combine %phase1#11 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_12 = step.combine %phase1#12 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_13 = step.combine %phase1#13 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_14 = step.combine %phase1#14 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_15 = step.combine %phase1#15 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_16 = step.combine %phase1#16 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_17 = step.combine %phase1#17 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_18 = step.combine %phase1#18 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_19 = step.combine %phase1#19 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_20 = step.combine %phase1#20 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_21 = step.combine %phase1#21 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_22 = step.combine %phase1#22 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_23 = step.combine %phase1#23 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_24 = step.combine %phase1#24 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_25 = step.combine %phase1#25 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_26 = step.combine %phase1#26 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_27 = step.combine %phase1#27 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_28 = step.combine %phase1#28 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_29 = step.combine %phase1#29 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_30 = step.combine %phase1#30 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_31 = step.combine %phase1#31 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_32 = step.combine %phase1#32 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_33 = step.combine %phase1#33 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_34 = step.combine %phase1#34 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_35 = step.combine %phase1#35 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_36 = step.combine %phase1#36 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_37 = step.combine %phase1#37 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_38 = step.combine %phase1#38 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_39 = step.combine %phase1#39 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_40 = step.combine %phase1#40 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_41 = step.combine %phase1#41 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_42 = step.combine %phase1#42 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_43 = step.combine %phase1#43 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_44 = step.combine %phase1#44 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_45 = step.combine %phase1#45 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_46 = step.combine %phase1#46 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_47 = step.combine %phase1#47 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_48 = step.combine %phase1#48 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_49 = step.combine %phase1#49 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_50 = step.combine %phase1#50 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_51 = step.combine %phase1#51 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_52 = step.combine %phase1#52 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_53 = step.combine %phase1#53 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_54 = step.combine %phase1#54 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_55 = step.combine %phase1#55 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_56 = step.combine %phase1#56 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_57 = step.combine %phase1#57 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_58 = step.combine %phase1#58 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_59 = step.combine %phase1#59 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_60 = step.combine %phase1#60 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_61 = step.combine %phase1#61 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_62 = step.combine %phase1#62 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_63 = step.combine %phase1#63 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_64 = step.combine %phase1#64 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_65 = step.combine %phase1#65 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_66 = step.combine %phase1#66 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_67 = step.combine %phase1#67 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_68 = step.combine %phase1#68 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_69 = step.combine %phase1#69 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_70 = step.combine %phase1#70 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_71 = step.combine %phase1#71 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_72 = step.combine %phase1#72 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_73 = step.combine %phase1#73 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_74 = step.combine %phase1#74 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_75 = step.combine %phase1#75 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_76 = step.combine %phase1#76 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_77 = step.combine %phase1#77 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_78 = step.combine %phase1#78 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_79 = step.combine %phase1#79 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_80 = step.combine %phase1#80 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_81 = step.combine %phase1#81 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_82 = step.combine %phase1#82 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_83 = step.combine %phase1#83 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_84 = step.combine %phase1#84 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_85 = step.combine %phase1#85 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_86 = step.combine %phase1#86 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_87 = step.combine %phase1#87 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_88 = step.combine %phase1#88 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_89 = step.combine %phase1#89 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_90 = step.combine %phase1#90 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_91 = step.combine %phase1#91 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_92 = step.combine %phase1#92 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_93 = step.combine %phase1#93 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_94 = step.combine %phase1#94 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_95 = step.combine %phase1#95 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
    %phase1_96 = step.combine %phase1#96 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f64>
  }
}

// -----

step.optimizer @positions {
  // expected-error @+1 {{'step.program' op rounds stochastically, which has no kernels for cuda}}
  step.program @program(%p: param[*] as bf16, %i: position[*] as i64) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    step.traverse @phase0 over [*] reads (%x = %p : <[*], bf16>, %y = %i : <[*], i64>) writes (%p : <[*], bf16>) {
      step.yield %x : bf16
    }
  }
}
