package My::Suite::Sluice;

@ISA = qw(My::Suite);

# Which results of the server's own tests are to be expected: of the series that runs.
sub skip_combinations {
  my %skip;
  my $other = $::mysql_version_id >= 110800 ? 'up_to_10_11' : 'since_11_8';
  $skip{'include/series.combinations'} = [$other];
  %skip
}

bless { };
