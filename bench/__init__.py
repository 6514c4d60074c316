"""The measurements quoted in the README, one command each."""
