package sampling

func setSIMD(on bool) { simd = on }
