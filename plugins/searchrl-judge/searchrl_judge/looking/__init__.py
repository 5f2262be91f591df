"""Looking at a judge: cases, orders hidden in answers, agreement, and what it costs."""
